"""The workbench: the products of one text in a browser, to be read, mended, advised on, and gone on from.

It writes edits, drafts and what going on leaves into the folder of one task, which `plansmith.modelling` knows.
"""
