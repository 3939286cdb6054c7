"""The audit: small pure rules that read tables of measurements and say what in them cannot be believed.

`registry` lists every rule; `frames` is the form of table that they read; `published` brings a printed table into it.
"""
