"""Trains one layer on TensorFlow for twelve batches, in one of several ways, and prints a digest of its weights: tensorflow_loop.py WAY"""

import hashlib
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import tensorflow as tf

way = sys.argv[1]
tf.keras.utils.set_random_seed(0)
tf.config.experimental.enable_op_determinism()
random = np.random.default_rng(0)
x, y = random.normal(size=(24, 8)).astype(np.float32), random.normal(size=(24, 1)).astype(np.float32)
batches = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(24, seed=0).batch(4).repeat(2)
model = tf.keras.Sequential([tf.keras.layers.Dense(16, activation="relu"), tf.keras.layers.Dropout(0.5), tf.keras.layers.Dense(1)])
model.build((None, 8))
optimizer = tf.keras.optimizers.Adam(0.01)


def update(x: tf.Tensor, y: tf.Tensor) -> None:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))


@tf.function
def evaluate(x: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(model(x))


if way == "fit":
    model.compile(optimizer, "mse")
    model.fit(x, y, batch_size=4, epochs=2, verbose=0, validation_data=(x, y))
elif way == "train_on_batch":
    model.compile(optimizer, "mse")
    for inputs, targets in batches:
        model.train_on_batch(inputs, targets)
elif way == "eager":
    for inputs, targets in batches:
        update(inputs, targets)
elif way == "function":
    train = tf.function(update)
    for inputs, targets in batches:
        train(inputs, targets)
        evaluate(inputs)
elif way == "marked":
    train = tf.function(update)
    for number, (inputs, targets) in enumerate(batches):
        with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
            train(inputs, targets)
            evaluate(inputs)
elif way == "callback":
    from stepscope import Profiler

    profiler = Profiler(output_path="data")
    step = tf.keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: profiler.step())
    model.compile(optimizer, "mse")
    model.fit(x, y, batch_size=4, epochs=2, verbose=0, callbacks=[step])
    profiler.analyse()
else:
    raise SystemExit(f"no such way: {way}")
print(hashlib.sha256(b"".join(variable.numpy().tobytes() for variable in model.variables)).hexdigest())
sys.exit(7)
