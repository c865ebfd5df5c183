# SPDX-License-Identifier: Apache-2.0
"""A model saved from Python, behind `paoding serve`: by plain HTTP, and by NVIDIA's client of the Open Inference Protocol
where it is installed (make deps-python)."""

import json
import os
import pathlib
import re
import subprocess
import urllib.error
import urllib.request

import numpy as np
import pytest

import paoding as pd

HERE = pathlib.Path(__file__).resolve()


def program():
    """The command line of the build that this package is of."""
    beside = pathlib.Path(pd._paoding.__file__).absolute().parents[2] / 'paoding'
    if beside.is_file() and os.access(beside, os.X_OK):
        return beside
    pytest.skip('NOT CHECKED: there is no command line beside this package')


class Server:
    def __init__(self, file, *options):
        self.process = subprocess.Popen(
            [program(), 'serve', str(file), '--port', '0', *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        line = self.process.stdout.readline()
        found = re.search(r':(\d+)/predict', line)
        assert found, line + self.process.stderr.read()
        self.port = int(found[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.communicate(timeout=60)
        assert self.process.returncode == 0

    def ask(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f'http://127.0.0.1:{self.port}{path}', data, {'Content-Type': 'application/json'}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or 'null')


@pytest.fixture(scope='module')
def file(tmp_path_factory):
    """An LSTM classifier of lengths that vary, and NumPy's answer for it."""
    @pd.function(
        x=('f32', ['batch', 'time', 4]),
        lengths=('i64', ['batch']),
        extents={'batch': (1, 8, pd.powers_of_two()), 'time': (1, 16, pd.bucket_sizes([8, 16]))},
        seed=3,
    )
    def classify(x, lengths):
        last = pd.nn.LSTM('lstm', 4, 8)(x.transpose(1, 0, 2), lengths=lengths).last_h[0]
        logits = pd.nn.Linear('out', 8, 3)(last)
        return {'chances': pd.softmax(logits), 'kind': logits.argmax(axis=1)}

    path = tmp_path_factory.mktemp('models') / 'kinds.pd'
    pd.save_model(path, {'classify': classify}, batch='batch')
    return path


def sequences(batch, time, seed):
    random = np.random.default_rng(seed)
    return random.normal(size=(batch, time, 4)).astype(np.float32), random.integers(1, time + 1, batch)


def test_a_function_is_saved_with_its_sizes_and_takes_any_number_of_rows(file):
    model = pd.Model.load(file)
    assert model.batch == 'batch' and model.entries == ['classify']
    assert len(model.inputs('classify')) == 4 * 2
    for batch in (1, 3, 8, 19):
        x, lengths = sequences(batch, 8, batch)
        together = model(x=x, lengths=lengths)
        assert set(together) == {'chances', 'kind'}
        for row in range(batch):
            alone = model(x=x[row : row + 1], lengths=lengths[row : row + 1])
            np.testing.assert_allclose(together['chances'].numpy()[row], alone['chances'].numpy()[0], atol=1e-6)
    with pytest.raises(pd.ShapeError, match='it takes'):
        model(x=np.ones((2, 9, 4), np.float32), lengths=[1, 2])


def test_functions_without_an_end_of_sizes_are_refused(tmp_path):
    @pd.function(x=('f32', ['rows', 2]))
    def double(x):
        return x * 2

    with pytest.raises(pd.ArgumentError, match='rows has no maximum'):
        pd.save_model(tmp_path / 'a.pd', {'double': double})

    @pd.function(x=('f32', ['rows', 2]), extents={'rows': (1, 5000)})
    def triple(x):
        return x * 3

    with pytest.raises(pd.ArgumentError, match='5000 buckets, a graph for each; at most 1024'):
        pd.save_model(tmp_path / 'a.pd', {'triple': triple})


def test_http_gives_what_the_model_gives(file):
    model = pd.Model.load(file)
    x, lengths = sequences(5, 16, 1)
    wanted = {name: value.numpy() for name, value in model(x=x, lengths=lengths).items()}
    with Server(file) as server:
        plain = server.ask('/predict', {'inputs': {'x': x.tolist(), 'lengths': lengths.tolist()}})['outputs']
        np.testing.assert_array_equal(np.array(plain['chances'], np.float32), wanted['chances'])
        np.testing.assert_array_equal(plain['kind'], wanted['kind'])
        with pytest.raises(urllib.error.HTTPError) as error:
            server.ask('/predict', {'inputs': {'x': x.tolist()}})
        assert error.value.code == 400
        assert json.loads(error.value.read()) == {'error': 'no value is given for: lengths'}


def test_tritonclient_gets_what_the_model_gives(file):
    client_of = pytest.importorskip('tritonclient.http', reason='NOT CHECKED: no tritonclient here (make deps-python)')
    from tritonclient.utils import InferenceServerException

    model = pd.Model.load(file)
    with Server(file, '--wait', '20') as server:
        client = client_of.InferenceServerClient(f'127.0.0.1:{server.port}', concurrency=8)
        assert client.is_server_live() and client.is_server_ready() and client.is_model_ready('kinds')
        assert not client.is_model_ready('others')
        assert client.get_server_metadata()['extensions'] == ['binary_tensor_data']
        metadata = client.get_model_metadata('kinds')
        assert metadata['inputs'][0] == {'name': 'x', 'datatype': 'FP32', 'shape': [-1, -1, 4]}
        assert [each['name'] for each in client.get_model_repository_index()] == ['kinds']

        def asked(x, lengths, binary):
            inputs = [client_of.InferInput('x', x.shape, 'FP32'), client_of.InferInput('lengths', lengths.shape, 'INT64')]
            inputs[0].set_data_from_numpy(x, binary_data=binary)
            inputs[1].set_data_from_numpy(lengths, binary_data=binary)
            outputs = [client_of.InferRequestedOutput(name, binary_data=binary) for name in ('kind', 'chances')]
            return inputs, outputs

        for binary in (True, False):
            x, lengths = sequences(3, 8, 2)
            result = client.infer('kinds', *asked(x, lengths, binary)[:1], outputs=asked(x, lengths, binary)[1], request_id='9')
            wanted = model(x=x, lengths=lengths)
            np.testing.assert_array_equal(result.as_numpy('chances'), wanted['chances'].numpy())
            np.testing.assert_array_equal(result.as_numpy('kind'), wanted['kind'].numpy())
            assert result.get_response()['id'] == '9'
        # Many at once, of several lengths and sizes.
        pending = []
        for i in range(24):
            x, lengths = sequences(1 + i % 3, 8 if i % 2 else 16, i)
            inputs, outputs = asked(x, lengths, True)
            pending.append((x, lengths, client.async_infer('kinds', inputs, outputs=outputs)))
        for x, lengths, each in pending:
            got = each.get_result().as_numpy('chances')
            np.testing.assert_allclose(got, model(x=x, lengths=lengths)['chances'].numpy(), atol=1e-6)
        with pytest.raises(InferenceServerException, match='needed is .-1,-1,4'):
            x = np.ones((1, 8, 5), np.float32)
            client.infer('kinds', asked(x, np.ones(1, np.int64), True)[0])
        with pytest.raises(InferenceServerException, match='not known here'):
            inputs, _ = asked(*sequences(1, 8, 0), True)
            client.infer('kinds', inputs, request_compression_algorithm='gzip')
        client.close()
