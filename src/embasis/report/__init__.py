"""What a run looks like: records, tables, figures and one-file pages. Values in, strings out; no files written."""
