"""Update rules of whole matrices, in torch: Muon, Shampoo, SOAP; a rule of one's own is a `MatrixRule`."""
