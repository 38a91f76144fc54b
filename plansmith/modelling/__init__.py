"""From a paragraph of text to a domain and a problem, in steps that are asked, read, checked and criticised (NL2Plan).

Source: NL2Plan (arXiv 2405.04215). Here is the dialogue alone: it asks nobody, plans nothing and reads no clock.
"""
