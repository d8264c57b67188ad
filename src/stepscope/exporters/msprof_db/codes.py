"""Codes of names in the tables of msprof's database."""

from stepscope.readers.ascend.prof.device.counters import ASCEND_MODULES

LEVELS = {
    "acl": 20000,
    "model": 15000,
    "node": 10000,
    "communication": 5500,
    "runtime": 5000,
    "pytorch": 30000,
    "pta": 25000,
    "aicpu": 6000,
}
_HCCL_TYPES = ("INT8", "INT16", "INT32", "FP16", "FP32", "INT64", "UINT64", "UINT8", "UINT16", "UINT32", "FP64", "BFP16", "INT128")
_ODD = {255: "RESERVED", 65534: "N/A", 65535: "INVALID_TYPE"}
DATA_TYPES = {**dict(enumerate(_HCCL_TYPES)), 14: "HIF8", 15: "FP8E4M3", 16: "FP8E5M2", 17: "FP8E8M0", **_ODD}
LINKS = {**dict(enumerate(("ON_CHIP", "HCCS", "PCIE", "ROCE", "SIO", "HCCS_SW", "STANDARD_ROCE", "UB", "UBoE"))), **_ODD}
TRANSPORTS = {**dict(enumerate(("SDMA", "RDMA", "LOCAL", "UB", "ROCE"))), **_ODD}
RDMA = {0: "RDMA_SEND_NOTIFY", 1: "RDMA_SEND_PAYLOAD", **_ODD}
COPIES = (
    *("host to host", "host to device", "device to host", "device to device", "managed memory"),
    *("addr device to device", "host to device ex", "device to host ex"),
)
ENUMS = {
    "ENUM_API_TYPE": {number: word for word, number in LEVELS.items()} | {50001: "op", 50002: "queue", 50003: "trace", 50004: "mstx"},
    "ENUM_MODULE": ASCEND_MODULES,
    "ENUM_HCCL_DATA_TYPE": DATA_TYPES,
    "ENUM_HCCL_LINK_TYPE": LINKS,
    "ENUM_HCCL_TRANSPORT_TYPE": TRANSPORTS,
    "ENUM_HCCL_RDMA_TYPE": RDMA,
    "ENUM_MSTX_EVENT_TYPE": dict(enumerate(("marker", "push/pop", "start/end", "marker_ex"))),
    "ENUM_MEMCPY_OPERATION": {**dict(enumerate(COPIES)), 65535: "other"},
    "ENUM_OVERLAP_ANALYSIS_TYPE": {0: "COMPUTE", 1: "COMMUNICATION", 2: "COMM_NOT_OVERLAP_COMP", 3: "FREE", 65535: "RESERVE"},
}
