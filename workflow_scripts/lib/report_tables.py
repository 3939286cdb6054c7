"""What the tables of the report show: the columns of each, in order, with their titles and units."""

from workflow_scripts.lib.page import Column

MODEL = [
    Column(name="model", title="model"),
    Column(name="architecture", title="architecture", axis=True),
    Column(name="n_layer", title="layers", kind="count", axis=True),
    Column(name="n_head", title="heads", kind="count", axis=True),
    Column(name="n_embd", title="width", kind="count", axis=True),
    Column(name="n_params", title="parameters", kind="count", axis=True),
]
STEP = [
    Column(name="batch_size", title="batch", kind="count", axis=True),
    Column(name="sequence_length", title="context", kind="count", axis=True),
    Column(name="precision", title="precision", axis=True),
    Column(name="execution", title="execution", axis=True),
]
TIME = [
    Column(name="step_time_s", title="step time", kind="s", measured=True),
    Column(
        name="step_time_s", title="interval", kind="s", low="step_time_low_s", high="step_time_high_s", measured=True
    ),
    Column(name="throughput_tokens_per_s", title="throughput", kind="tokens/s", measured=True),
    Column(
        name="throughput_tokens_per_s", title="interval", kind="tokens/s", low="throughput_low_tokens_per_s",
        high="throughput_high_tokens_per_s", measured=True,
    ),
    Column(name="achieved_flop_per_s", title="rate", kind="FLOP/s", measured=True),
]  # fmt: skip
MEMORY = [
    Column(name="peak_allocated_bytes", title="peak allocated", kind="bytes", measured=True),
    Column(name="peak_reserved_bytes", title="peak reserved", kind="bytes", measured=True),
    Column(name="peak_process_bytes", title="peak of process", kind="bytes", measured=True),
]
RECORD = [
    Column(name="doubts", title="doubts", kind="doubts", measured=True),
    Column(name="record", title="from", kind="record"),
]

CELLS = [
    *MODEL, *STEP,
    Column(name="mode", title="pass", axis=True),
    Column(name="attention", title="attention", axis=True),
    Column(name="process", title="process", kind="count", axis=True),
    *TIME,
    Column(name="n_samples", title="samples", kind="count", measured=True),
    Column(name="stop", title="stopped by", measured=True),
    Column(name="first_step_s", title="first step", kind="s", measured=True),
    Column(name="n_cold", title="cold steps", kind="count", measured=True),
    Column(name="compile_s", title="compile", kind="s", measured=True),
    Column(name="anchor_s", title="anchor", kind="s", measured=True),
    *MEMORY,
    Column(name="predicted_step_time_s", title="step time predicted", kind="s", measured=True),
    Column(name="predicted_bound", title="bound by", kind="text", measured=True),
    Column(name="predicted_peak_bytes", title="peak allocated predicted", kind="bytes", measured=True),
    *RECORD,
]  # fmt: skip
RUNS = [
    Column(name="device", title="device", axis=True),
    Column(name="name", title="model"),
    Column(name="treatment", title="treatment", axis=True),
    Column(name="seed", title="seed"),
    *MODEL[1:], *STEP,
    Column(name="n_steps", title="steps", kind="count", axis=True),
    Column(name="n_tokens", title="tokens", kind="count", axis=True),
    Column(name="final_val_loss", title="validation loss, last", kind="loss", measured=True),
    Column(name="best_val_loss", title="best", kind="loss", measured=True),
    Column(name="best_val_step", title="at step", kind="count", measured=True),
    Column(name="val_bits_per_byte", title="bits per byte", kind="loss", measured=True),
    Column(name="final_train_loss", title="training loss, last batch", kind="loss", measured=True),
    *TIME,
    Column(name="train_s", title="training", kind="s", measured=True),
    Column(name="eval_s", title="evaluation", kind="s", measured=True),
    Column(name="checkpoint_s", title="checkpoints", kind="s", measured=True),
    Column(name="wall_s", title="in all", kind="s", measured=True),
    *MEMORY, *RECORD,
]  # fmt: skip
PROCESSES = [
    Column(name="device", title="device", axis=True),
    Column(name="cell", title="cell"),
    Column(name="n_processes", title="processes", kind="count"),
    Column(name="median_s", title="median step time", kind="s", measured=True),
    Column(name="spread", title="slowest over fastest, less one", kind="percent", measured=True),
    Column(name="cv", title="coefficient of variation", kind="percent", measured=True),
]
TIMERS = [
    Column(name="device", title="device", axis=True),
    Column(name="cell", title="cell", axis=True),
    Column(name="timer", title="timer"),
    Column(name="n", title="samples", kind="count", measured=True),
    Column(name="median_s", title="median", kind="s", measured=True),
    Column(name="median_s", title="interval", kind="s", low="low_s", high="high_s", measured=True),
    Column(name="between_rounds", title="between its rounds", kind="percent", measured=True),
    Column(name="ratio_to_assay", title="over Assay's", kind="number", measured=True),
    Column(name="agree", title="agrees", measured=True),
    Column(name="record", title="from", kind="record"),
]
DEVICES = [
    Column(name="device", title="device"),
    Column(name="name", title="hardware"),
    Column(name="origin", title="measured here, or recorded", axis=True),
    Column(name="type", title="kind"),
    Column(name="threads", title="threads", kind="count"),
    Column(name="memory_bytes", title="memory", kind="bytes"),
    Column(name="driver", title="driver", measured=True),
    Column(name="torch", title="torch"),
    Column(name="python", title="Python"),
    Column(name="platform", title="platform"),
    Column(name="host", title="host"),
    Column(name="sync_check_ratio", title="twice the work takes", kind="ratio", measured=True),
]
CEILINGS = [
    Column(name="device", title="device", axis=True),
    Column(name="quantity", title="quantity"),
    Column(name="precision", title="precision"),
    Column(name="value", title="median", kind="printed"),
    Column(name="interval", title="interval", kind="printed"),
    Column(name="datasheet", title="datasheet", kind="printed"),
]
OPERATORS = [
    Column(name="device", title="device", axis=True),
    Column(name="name", title="model", axis=True),
    Column(name="operator", title="operator"),
    Column(name="phase", title="phase", measured=True),
    Column(name="category", title="category"),
    Column(name="calls_per_step", title="calls a step", kind="number", measured=True),
    Column(name="self_time_s", title="own time a step", kind="s", measured=True),
    Column(name="share", title="share of the step", kind="percent", measured=True),
    Column(name="flops", title="FLOPs", kind="FLOPs", measured=True),
    Column(name="moved_bytes", title="moves at least", kind="bytes", measured=True),
    Column(name="self_memory_bytes", title="memory", kind="bytes", measured=True),
]
ROLES = [
    Column(name="role", title="role"),
    *MODEL[1:5],
    Column(name="n_inner", title="width of the MLP", kind="count"),
    Column(name="sequence_length", title="context", kind="count", axis=True),
    Column(name="vocab_size", title="vocabulary", kind="count", axis=True),
    Column(name="total", title="parameters", kind="count"),
    Column(name="non_embedding", title="without embeddings", kind="count"),
    Column(name="flops_per_token", title="FLOPs per token", kind="count"),
]
PREDICTED = [
    Column(name="role", title="role"),
    Column(name="device", title="device", axis=True),
    Column(name="step_time_s", title="step time predicted", kind="s", measured=True),
    Column(name="train_s", title="training predicted", kind="s", measured=True),
    Column(name="peak_bytes", title="peak allocated predicted", kind="bytes", measured=True),
]
