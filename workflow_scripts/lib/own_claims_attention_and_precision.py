"""What the study `attention_and_precision` says of each claim of its document."""

CHECKS = ()
