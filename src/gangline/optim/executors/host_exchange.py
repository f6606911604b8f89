"""Parts of matrices to the host that assembles them, and parts of its updates back. Tensors in one dimension travel."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from gangline.optim.executors.exchange import Pending, UpdateExchange
from gangline.optim.executors.pieces import MatrixPiece
from gangline.optim.plan.groups import MicroGroup

Shapes = Sequence[tuple[int, int]]


class HostExchange:
    """Gathers and scatters micro-groups; all hosts call in the same order. Matrices are named by place in the plan."""

    def __init__(
        self, pieces: Sequence[Sequence[MatrixPiece]], shapes: Shapes, hosts: UpdateExchange, like: Tensor
    ) -> None:
        """Args:
        pieces: Of each matrix, what each host holds of it: `pieces[place][host]`.
        shapes: Of the whole matrices.
        hosts: That the matrices are cut over.
        like: Any tensor of the device and dtype that travels.
        """
        self._pieces, self._shapes, self._hosts, self._like = pieces, shapes, hosts, like

    def own(self, place: int) -> MatrixPiece:
        """What this host holds of a matrix."""
        return self._pieces[place][self._hosts.place]

    def gather(self, group: MicroGroup, parts: Mapping[int, Tensor]) -> Pending:
        """Send `parts`, what this host holds of each matrix of the group; `assemble` takes what comes."""
        pieces = [[parts[place] for place in places] for places in group]
        mine = group[self._hosts.place]
        received = [sum(self._pieces[place][peer].elements for place in mine) for peer in range(len(group))]
        return self._hosts.all_to_all(pieces, self._like, received)

    def assemble(self, places: Sequence[int], received: Tensor) -> dict[int, Tensor]:
        """Whole matrices that this host computes, from the parts of all hosts."""
        found = {place: self._like.new_empty(self._shapes[place]) for place in places}
        start = 0
        for peer in range(self._hosts.ranks):
            for place in places:
                piece = self._pieces[place][peer]
                part = received[start : start + piece.elements]
                start += piece.elements
                if piece.elements:
                    found[place][piece.rows, piece.columns] = part.view(piece.shape)
        return found

    def scatter(self, group: MicroGroup, updates: Mapping[int, Tensor]) -> Pending:
        """Send each host what it holds of the `updates` that this one computed; `received` takes what comes."""
        mine = group[self._hosts.place]
        pieces = [[_flatten(updates[place], self._pieces[place][peer]) for place in mine] for peer in range(len(group))]
        received = [sum(self.own(each).elements for each in places) for places in group]
        return self._hosts.all_to_all(pieces, self._like, received)

    def received(self, group: MicroGroup, scattered: Tensor) -> dict[int, Tensor]:
        """What this host holds of each update of the group."""
        found, start = {}, 0
        for place in (place for places in group for place in places):
            found[place] = scattered[start : start + self.own(place).elements]
            start += self.own(place).elements
        return found


def _flatten(update: Tensor, piece: MatrixPiece) -> Tensor:
    return update[piece.rows, piece.columns].flatten()
