"""Rounds of a federation: what is asked of members, how their answers merge, sums that show no single one. No torch."""
