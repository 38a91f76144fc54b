"""From a paragraph of text to a domain and a problem, in steps that are asked, read, checked and criticised (NL2Plan).

Source: NL2Plan (arXiv 2405.04215). Who answers comes from outside, and planning is
not here; `dialogue`, `reading` and `checks` touch no file.
"""
