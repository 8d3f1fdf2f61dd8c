import numpy as np
import pytest

from synth.errors import DocumentError
from synth.formats import expert_maps

PHY2LOG = np.array([[0, 1, 2, 3, 0, 1], [0, 2, 0, 1, 0, 3]])
LOG2PHY = np.array(
    [[[0, 4, -1], [1, 5, -1], [2, -1, -1], [3, -1, -1]], [[0, 2, 4], [3, -1, -1], [1, -1, -1], [5, -1, -1]]]
)
LOGCNT = np.array([[2, 2, 1, 1], [3, 1, 1, 1]])


def test_vllm_tables_are_padded_to_redundant_experts_plus_one():
    document = expert_maps.to_vllm(PHY2LOG, LOG2PHY, LOGCNT)
    assert document["physical_to_logical_map"] == PHY2LOG.tolist()
    assert document["logical_replica_count"] == LOGCNT.tolist()
    assert document["logical_to_physical_map"] == LOG2PHY.tolist()  # 2 redundant experts: 3 columns
    wider = expert_maps.to_vllm(np.arange(8)[None] % 4, np.arange(8).reshape(2, 4).T[None], np.full((1, 4), 2))
    assert wider["logical_to_physical_map"][0][0] == [0, 4, -1, -1, -1]


def test_sglang_has_a_row_for_layers_without_experts():
    document = expert_maps.to_sglang(PHY2LOG, LOG2PHY, LOGCNT, dense=1)
    assert document == {"physical_to_logical_map": [[0, 1, 2, 3, 0, 1], *PHY2LOG.tolist()]}


def test_vllm_ascend_lists_experts_by_device():
    document = expert_maps.to_vllm_ascend(PHY2LOG, ranks=3)
    assert document["moe_layer_count"] == 2
    assert document["layer_list"][1] == {
        "layer_id": 1,
        "device_count": 3,
        "device_list": [
            {"device_id": 0, "device_expert": [0, 2]},
            {"device_id": 1, "device_expert": [0, 1]},
            {"device_id": 2, "device_expert": [0, 3]},
        ],
    }


@pytest.mark.parametrize(
    "document",
    [
        expert_maps.to_eplb(PHY2LOG, LOG2PHY, LOGCNT),
        expert_maps.to_sglang(PHY2LOG, LOG2PHY, LOGCNT),
        expert_maps.to_vllm(PHY2LOG, LOG2PHY, LOGCNT),
        expert_maps.to_vllm_ascend(PHY2LOG, 3),
    ],
)
def test_every_format_is_read_back(document):
    assert (expert_maps.read_map(document, subject="map.json") == PHY2LOG).all()


def test_recorded_counts_of_several_steps_are_added_up():
    assert expert_maps.read_loads({"logical_count": [[[1, 2]], [[3, 4]]]}, subject="x").tolist() == [[4, 6]]
    assert expert_maps.read_loads({"logical_count": [[1, 2]]}, subject="x").tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("document", "wrong"),
    [
        ({"loads": [[1, 2], [3]]}, "differ in length"),
        ({"loads": [[1, "2"]]}, "all numbers"),
        ({"loads": [[1, -2]]}, "negative"),
        ({"loads": []}, "at least one"),
        ({"loads": [[]]}, "at least one"),
        ({"loads": 5}, "must be an array"),
        ({"weights": [[1]]}, "load of each expert"),
        ([[1, 2]], "must be an object"),
        ({"loads": [[1e999]]}, "infinite"),
        ({"loads": [[10**30, 1]]}, "all numbers"),
    ],
)
def test_loads_that_cannot_be_used_are_refused(document, wrong):
    with pytest.raises(DocumentError, match=wrong):
        expert_maps.read_loads(document, subject="loads.json")


def test_a_map_must_be_a_map():
    with pytest.raises(DocumentError, match="holds no placement"):
        expert_maps.read_map({"loads": [[1]]}, subject="p.json")
    with pytest.raises(DocumentError, match="all integers"):
        expert_maps.read_map({"phy2log": [[1.5]]}, subject="p.json")
