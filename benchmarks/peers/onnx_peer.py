# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime where it applies: the LSTM forward, layer_norm forward and the conv net forward, as a caller waits for
them. Usage: onnx_peer.py cuda|cpu, then see protocol.py. Without `onnx` and `onnxruntime` every row says so."""
import os
import sys

from protocol import serve, time_calls

try:
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper
    MISSING = ""
except ImportError as error:
    MISSING = f"ONNX Runtime is not installed: {error}"
ON_GPU = len(sys.argv) > 1 and sys.argv[1] == "cuda"


def weight(name, *shape, scale=0.05):
    return numpy_helper.from_array((np.random.randn(*shape) * scale).astype(np.float32), name)


def lstm(s):
    hidden, nodes, weights, x = s["hidden"], [], [], "x"
    for i in range(s["layers"]):
        weights += [weight(f"w{i}", 1, 4 * hidden, hidden), weight(f"r{i}", 1, 4 * hidden, hidden),
                    weight(f"b{i}", 1, 8 * hidden)]
        nodes.append(helper.make_node("LSTM", [x, f"w{i}", f"r{i}", f"b{i}"], [f"y{i}"], hidden_size=hidden))
        weights.append(numpy_helper.from_array(np.array([1], np.int64), f"axis{i}"))
        nodes.append(helper.make_node("Squeeze", [f"y{i}", f"axis{i}"], [f"s{i}"]))
        x = f"s{i}"
    return nodes, weights, x, (s["steps"], s["batch"], hidden)


def layer_norm(s):
    columns = s["columns"]
    return ([helper.make_node("LayerNormalization", ["x", "gamma", "beta"], ["y"], axis=-1)],
            [weight("gamma", columns), weight("beta", columns)], "y", (s["rows"], columns))


def conv_net(s):
    nodes, weights, x, inputs, side = [], [], "x", s["image_channels"], s["size"]
    for i, channels in enumerate(s["channels"]):
        weights += [weight(f"k{i}", channels, inputs, 3, 3), weight(f"b{i}", channels)]
        nodes += [helper.make_node("Conv", [x, f"k{i}", f"b{i}"], [f"c{i}"], pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
                  helper.make_node("Relu", [f"c{i}"], [f"r{i}"]),
                  helper.make_node("MaxPool", [f"r{i}"], [f"p{i}"], kernel_shape=[2, 2], strides=[2, 2])]
        x, inputs, side = f"p{i}", channels, side // 2
    weights += [weight("dense", inputs * side * side, s["classes"]), weight("bias", s["classes"])]
    nodes += [helper.make_node("Flatten", [x], ["flat"]), helper.make_node("Gemm", ["flat", "dense", "bias"], ["y"])]
    return nodes, weights, "y", (s["batch"], s["image_channels"], s["size"], s["size"])


WORKS = {"lstm_forward": lstm, "layer_norm_forward": layer_norm, "conv_net_forward": conv_net}


def prepare(case, states, quick):
    walls = [state for state in states if state["clock"] == "wall" and state["sets"] == 1 and not state.get("swept")]
    is_plain = not case["sizes"].get("lengths") and case["sizes"].get("directions") != 2
    if case["kind"] not in WORKS or case["dtype"] not in ("f32", "tf32") or not is_plain or not walls:
        return []
    row = {"peer": "ONNX Runtime", "clock": "wall"}
    if MISSING:
        return [({**row, "why": MISSING}, None)]
    provider = "CUDAExecutionProvider" if ON_GPU else "CPUExecutionProvider"
    if provider not in onnxruntime.get_available_providers():
        return [({**row, "why": f"this ONNX Runtime has no {provider}"}, None)]
    nodes, weights, result, shape = WORKS[case["kind"]](case["sizes"])
    value = lambda name, dims: helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
    graph = helper.make_graph(nodes, "case", [value("x", shape)], [value(result, None)], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", "0")) if not ON_GPU else 0
    options.log_severity_level = 3
    settings = {"use_tf32": "1" if case["tf32"] else "0"} if ON_GPU else {}
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=[(provider, settings)])
    device = "cuda" if ON_GPU else "cpu"
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", onnxruntime.OrtValue.ortvalue_from_numpy(
        np.random.randn(*shape).astype(np.float32), device, 0))
    binding.bind_output(result, device)
    limits = dict(least=10, most=50, seconds=0.1) if quick else dict(least=50, most=200, seconds=0.3)

    def run():
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
    run()
    return [({**row, "cache": state["cache"]}, lambda: time_calls(run, **limits)) for state in walls]


if __name__ == "__main__":
    serve(prepare)
