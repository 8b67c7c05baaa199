"""The study of the method: what each setting is worth, and what a user would pick instead. See __main__.py.

| file | what it holds |
| --- | --- |
| sets.py | the table of data sets |
| shares.py | class-share shift, a variation of every set |
| candidates.py | everything that is run: comparison methods, variants of em_basis, a factorial, peers |
| peers.py | scikit-learn's and skada's methods on the same vectors |
| work.py | one unit of work: all candidates of a stage on one pair with one seed |
| rows.py | finished rows on disk, whole or not at all |
| effects.py | differences, standard errors and main effects: pure functions |
| tables.py, page.py | the rows as tables, and tables as Markdown and HTML |
"""
