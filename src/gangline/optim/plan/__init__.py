"""Plans of matrix optimizers: owners, micro-groups and times as arithmetic on shapes. The standard library alone."""
