"""Makes memory/minilm.onnx: the graph of all-MiniLM-L6-v2, whose weights stay in its safetensors.

    pip install onnx
    python examples/minilm_graph.py FOLDER_OF_THE_MODEL memory/minilm.onnx

From ids and a mask `seen`, both (batch, tokens), to unit vectors (batch, 384): BERT (Devlin et al.,
arXiv:1810.04805), then the sum over the tokens at length 1, which is their mean's direction.
"""

import json
import sys
from pathlib import Path
from typing import Any

from onnx import TensorProto, helper

FUSED = "com.microsoft"
WEIGHTS = "model.safetensors"


class Graph:
    """The nodes so far, and the weights that they use by their offsets in the file."""

    def __init__(self, folder: Path) -> None:
        with (folder / WEIGHTS).open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            self.held = json.loads(file.read(size))
        self.start = 8 + size
        self.nodes: list[Any] = []
        self.weights: dict[str, Any] = {}

    def weight(self, name: str) -> str:
        begin, end = self.held[name]["data_offsets"]
        tensor = TensorProto(
            name=name,
            data_type=TensorProto.FLOAT,
            dims=self.held[name]["shape"],
            data_location=TensorProto.EXTERNAL,
        )
        place = {"location": WEIGHTS, "offset": self.start + begin, "length": end - begin}
        for key, value in place.items():
            tensor.external_data.add(key=key, value=str(value))
        self.weights[name] = tensor
        return name

    def number(self, name: str, value: int) -> str:
        self.weights[name] = helper.make_tensor(name, TensorProto.INT64, [1], [value])
        return name

    def node(self, op: str, inputs: list[str], out: str, domain: str = "", **more: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [out], domain=domain, **more))
        return out

    def turned(self, name: str) -> str:
        return self.node("Transpose", [self.weight(name)], f"{name}.T", perm=[1, 0])


def embeddings(graph: Graph, epsilon: float) -> str:
    prefix, node = "embeddings", graph.node
    zero, one, two = (graph.number(n, v) for n, v in (("zero", 0), ("one", 1), ("two", 2)))
    words = node("Gather", [graph.weight(f"{prefix}.word_embeddings.weight"), "ids"], "words")
    width = node("Slice", [node("Shape", ["ids"], "shape"), one, two], "width")
    table = graph.weight(f"{prefix}.position_embeddings.weight")
    places = node("Slice", [table, zero, width, zero], "places")
    table = graph.weight(f"{prefix}.token_type_embeddings.weight")
    first = node("Slice", [table, zero, one, zero], "first_sentence")
    summed = node("Add", [words, node("Add", [places, first], "fixed")], "embedded")
    norm = [graph.weight(f"{prefix}.LayerNorm.{name}") for name in ("weight", "bias")]
    return node("LayerNormalization", [summed, *norm], "x", epsilon=epsilon)


def layer(graph: Graph, at: str, x: str, config: dict[str, Any]) -> str:
    node, weight, turned = graph.node, graph.weight, graph.turned
    parts = [f"{at}.attention.self.{part}" for part in ("query", "key", "value")]
    qkv = node("Concat", [turned(f"{part}.weight") for part in parts], f"{at}.qkv", axis=1)
    bias = node("Concat", [weight(f"{part}.bias") for part in parts], f"{at}.bias", axis=0)
    heads = config["num_attention_heads"]
    seen = node("Attention", [x, qkv, bias, "seen"], f"{at}.seen", FUSED, num_heads=heads)
    x = _residual(graph, f"{at}.attention.output", seen, x, config["layer_norm_eps"])
    wide = f"{at}.intermediate.dense"
    up = node("MatMul", [x, turned(f"{wide}.weight")], f"{wide}.up")
    seen = node("BiasGelu", [up, weight(f"{wide}.bias")], f"{wide}.out", FUSED)
    return _residual(graph, f"{at}.output", seen, x, config["layer_norm_eps"])


def _residual(graph: Graph, at: str, values: str, x: str, epsilon: float) -> str:
    down = graph.node("MatMul", [values, graph.turned(f"{at}.dense.weight")], f"{at}.down")
    norm = [graph.weight(f"{at}.LayerNorm.{name}") for name in ("weight", "bias")]
    inputs = [down, x, *norm, graph.weight(f"{at}.dense.bias")]
    return graph.node("SkipLayerNormalization", inputs, f"{at}.out", FUSED, epsilon=epsilon)


def main(folder: Path, out: Path) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    graph = Graph(folder)
    x = embeddings(graph, config["layer_norm_eps"])
    for number in range(config["num_hidden_layers"]):
        x = layer(graph, f"encoder.layer.{number}", x, config)
    mask = graph.node("Cast", ["seen"], "seen.float", to=TensorProto.FLOAT)
    mask = graph.node("Unsqueeze", [mask, "two"], "mask")
    summed = graph.node("Mul", [x, mask], "masked")
    summed = graph.node("ReduceSum", [summed, "one"], "summed", keepdims=0)
    graph.node("LpNormalization", [summed], "vectors", axis=1, p=2)
    shape, size = ("batch", "tokens"), config["hidden_size"]
    made = helper.make_graph(
        graph.nodes,
        "all-MiniLM-L6-v2",
        [
            helper.make_tensor_value_info("ids", TensorProto.INT64, shape),
            helper.make_tensor_value_info("seen", TensorProto.INT32, shape),
        ],
        [helper.make_tensor_value_info("vectors", TensorProto.FLOAT, ("batch", size))],
        list(graph.weights.values()),
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(FUSED, 1)]
    out.write_bytes(helper.make_model(made, opset_imports=opsets, ir_version=8).SerializeToString())


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
