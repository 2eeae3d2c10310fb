"""Lab 00: a feed-forward network cut in two by hand, forward and backward, on two pretend GPUs.

One process and no communication library: a "GPU" is a place in a list of two, and an all-reduce is
a sum. Every step is checked against autograd on the whole network; the numbers are small integers,
so that equal means equal. Run it:  python experiments/35-ffn-by-hand/ffn.py

Dimensions, of which a lower-case letter is one GPU's part:
    B  tokens (3)    D  width of the model (3)    F  hidden units (2)    f  one GPU's units, F/2 (1)
"""

import sys
from dataclasses import dataclass

try:
    import torch
    from torch import Tensor
except ModuleNotFoundError as missing:
    sys.exit(
        f"ffn.py: error: this Python has no {missing.name}: run `make bench-env` once, and "
        "`source .venv/bin/activate` in every terminal"
    )

GPUS = 2
X_BD = torch.tensor([[1, 2, 0], [3, 0, -2], [2, -1, 1]], dtype=torch.float64)
W1_FD = torch.tensor([[1, 0, 2], [-1, 2, 1]], dtype=torch.float64)
W2_DF = torch.tensor([[1, -1], [2, 0], [0, 3]], dtype=torch.float64)
# What the rest of a model would send back: the gradient of the loss with respect to Y.
DY_BD = torch.tensor([[1, 0, -2], [0, 3, 1], [2, -1, 0]], dtype=torch.float64)


def activation(h: Tensor) -> Tensor:
    """φ, which stands between the two layers. The exercise puts something more interesting here."""
    return h


def slope(h: Tensor) -> Tensor:
    """φ′, the derivative of `activation` at each element of h."""
    return torch.ones_like(h)


@dataclass
class Wire:
    """What joins the two GPUs, counting what crosses it."""

    all_reduces: int = 0
    payload: int = 0  # bytes

    def all_reduce(self, parts: list[Tensor]) -> list[Tensor]:
        """Give every GPU the sum of the parts, as NCCL's or gloo's all-reduce would."""
        self.all_reduces += 1
        self.payload += parts[0].numel() * parts[0].element_size()
        return [torch.stack(parts).sum(0) for _ in parts]


@dataclass
class Proof:
    """Prints each identity once it has been found true, and stops at the first that is not."""

    wire: Wire
    identities: int = 0
    reported: int = 0  # all-reduces that stand beside an identity already

    def holds(self, identity: str, expected: Tensor, *computed: Tensor) -> None:
        """Compare what each GPU found with what autograd says of the whole network.

        Raises:
            AssertionError: they differ by more than rounding; both are shown.
        """
        scale = max(1.0, expected.abs().max().item())
        error = max((f - expected).abs().max().item() / scale for f in computed)
        if not error <= 1e-12:
            raise AssertionError(f"{identity}\nfound\n{computed[0]}\nautograd says\n{expected}")
        crossed = "all-reduce" if self.wire.all_reduces > self.reported else "nothing"
        self.identities, self.reported = self.identities + 1, self.wire.all_reduces
        print(f"  {identity:<34}{crossed:<14}{'exact' if error == 0 else f'to {error:.0e}'}")


def whole() -> dict[str, Tensor]:
    """Compute the network on one device, and let autograd find every gradient."""
    x_BD, w1_FD, w2_DF = (t.clone().requires_grad_() for t in (X_BD, W1_FD, W2_DF))
    h_BF = x_BD @ w1_FD.T
    a_BF = activation(h_BF)
    product_BD = a_BF @ w2_DF.T
    y_BD = product_BD + torch.zeros_like(product_BD)  # one term of a sum, to see what it is handed
    leaves = {"dX": x_BD, "dW1": w1_FD, "dW2": w2_DF, "dH": h_BF, "dA": a_BF, "d(part)": product_BD}
    gradients = torch.autograd.grad(y_BD, list(leaves.values()), DY_BD)
    values = {"H": h_BF.detach(), "A": a_BF.detach(), "Y": y_BD.detach()}
    return values | dict(zip(leaves, gradients, strict=True))


def cut() -> tuple[list[Tensor], list[Tensor]]:
    """Cut both weights along the hidden units: rows of W1, columns of W2, one part a GPU."""
    return list(W1_FD.chunk(GPUS, dim=0)), list(W2_DF.chunk(GPUS, dim=1))


def forward(want: dict[str, Tensor], wire: Wire, proof: Proof) -> tuple[list[Tensor], list[Tensor]]:
    """Run both GPUs forward; return each one's H and A, which its backward pass needs."""
    w1_fD, w2_Df = cut()
    h_Bf = [X_BD @ w1.T for w1 in w1_fD]
    proof.holds("[X·W1₀ᵀ  X·W1₁ᵀ] = H", want["H"], torch.cat(h_Bf, dim=1))
    a_Bf = [activation(h) for h in h_Bf]
    proof.holds("[φ(H₀)  φ(H₁)] = A", want["A"], torch.cat(a_Bf, dim=1))
    # Each part is as large as Y, and neither is right: only their sum is.
    parts_BD = [a @ w2.T for a, w2 in zip(a_Bf, w2_Df, strict=True)]
    y_BD = wire.all_reduce(parts_BD)
    proof.holds("A₀·W2₀ᵀ + A₁·W2₁ᵀ = Y, on both", want["Y"], *y_BD)
    show_sum(parts_BD, y_BD[0])
    return h_Bf, a_Bf


def backward(
    want: dict[str, Tensor], wire: Wire, proof: Proof, h_Bf: list[Tensor], a_Bf: list[Tensor]
) -> None:
    """Run both GPUs backward by hand: from dY to the gradients of both weights and of X."""
    w1_fD, w2_Df = cut()
    # A sum hands its gradient to each of its terms: a broadcast on paper, nothing on the wire,
    # since both GPUs hold the whole Y and each works out the same dY from it.
    dy_BD = [DY_BD for _ in range(GPUS)]
    proof.holds("dY = d(A₀·W2₀ᵀ) = d(A₁·W2₁ᵀ)", want["d(part)"], *dy_BD)
    dw2_Df = [dy.T @ a for dy, a in zip(dy_BD, a_Bf, strict=True)]
    proof.holds("[dYᵀ·A₀  dYᵀ·A₁] = dW2", want["dW2"], torch.cat(dw2_Df, dim=1))
    da_Bf = [dy @ w2 for dy, w2 in zip(dy_BD, w2_Df, strict=True)]
    proof.holds("[dY·W2₀  dY·W2₁] = dA", want["dA"], torch.cat(da_Bf, dim=1))
    dh_Bf = [da * slope(h) for da, h in zip(da_Bf, h_Bf, strict=True)]
    proof.holds("[dA₀∘φ′(H₀)  dA₁∘φ′(H₁)] = dH", want["dH"], torch.cat(dh_Bf, dim=1))
    dw1_fD = [dh.T @ X_BD for dh in dh_Bf]
    proof.holds("[dH₀ᵀ·X ; dH₁ᵀ·X] = dW1", want["dW1"], torch.cat(dw1_fD, dim=0))
    # Both GPUs read the whole X, so each knows only its share of dX.
    parts_BD = [dh @ w1 for dh, w1 in zip(dh_Bf, w1_fD, strict=True)]
    dx_BD = wire.all_reduce(parts_BD)
    proof.holds("dH₀·W1₀ + dH₁·W1₁ = dX, on both", want["dX"], *dx_BD)
    show_sum(parts_BD, dx_BD[0])


def row(values: Tensor, between: str = " ") -> str:
    """Print one row of a matrix: whole numbers as such, others to two places."""
    shown = (f"{v:.0f}" if v == round(v) else f"{v:.2f}" for v in (values + 0.0).tolist())
    return between.join(f"{text:>4}" for text in shown)


def show_sum(parts: list[Tensor], total: Tensor) -> None:
    """Print the parts, a plus between them, and what they add up to."""
    for line in range(len(total)):
        plus, equal = (" + ", " = ") if line == len(total) // 2 else ("   ", "   ")
        print("    " + plus.join(row(part[line]) for part in parts) + equal + row(total[line]))


def show_cut() -> None:
    """Print the network's numbers, with the line along which each weight is cut."""
    print(f"  {'X, on both':<18}{'W1 [F, D]':<26}{'W2 [D, F]':<18}dY, on both")
    w1 = [f"{row(W1_FD[0])}  GPU 0", f"{' -----' * 2}---", f"{row(W1_FD[1])}  GPU 1"]
    for b in range(len(X_BD)):
        print(f"{row(X_BD[b]):<18}{w1[b]:<26}{row(W2_DF[b], ' |'):<18}{row(DY_BD[b])}")
    print(f"{'':<44}GPU 0 | GPU 1\n")


def main() -> None:
    """Prove the cut network piece by piece, then say what it cost."""
    print("Y = φ(X·W1ᵀ)·W2ᵀ, cut in two along its hidden units\n")
    show_cut()
    want, wire = whole(), Wire()
    proof = Proof(wire)
    print(f"  {'forward':<34}{'on the wire':<14}against autograd")
    h_Bf, a_Bf = forward(want, wire, proof)
    print("\n  backward")
    backward(want, wire, proof, h_Bf, a_Bf)
    print(f"\n{proof.identities} identities hold; {wire.all_reduces} all-reduces of", end=" ")
    print(f"{wire.payload // wire.all_reduces} bytes each, and nothing else")


if __name__ == "__main__":
    main()
