"""Matrix optimizers under sharding: `plan` decides who computes which update, without torch."""
