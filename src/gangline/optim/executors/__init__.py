"""Plans of matrix optimizers carried out on ranks, in torch: holders, exchanges, the step."""
