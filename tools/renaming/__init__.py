"""What tools/rename.py is made of: the table of renames, the tree of modules, the plan, and the rewriting of files."""
