"""Names of a model and what is asked of them. Generated from conf/vocabulary; unit_conf_kinds compares this file with it."""

# What the score of a task is: sigmoid(logit), or the logit itself.
LOSSES = {
    "logloss": "probability",
    "none": "probability",
    "mse": "value",
    "focal": "probability",
    "pairwise": "probability",
}
ROW_POOLINGS = (
    "sum",
    "mean",
    "sqrtn",
    "max",
)
STEP_POOLINGS = (
    "sum",
    "mean",
    "sqrtn",
    "max",
    "last",
)
OPERATIONS = (
    "concat",
    "mlp",
    "dense",
    "bi_interaction",
    "sum",
    "add",
    "mean",
    "sqrtn",
    "max",
    "last",
    "multiply",
    "fm",
    "dot_interaction",
    "cross",
    "bias",
    "layer_norm",
    "dropout",
    "activate",
    "stop_gradient",
    "attention",
    "gru",
    "augru",
    "experts",
    "mixture",
)
# The `why` of a tombstone.
REMOVALS = {
    1: "idle",
    2: "weak",
    3: "score",
    4: "capacity",
    5: "manual",
}
