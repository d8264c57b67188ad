"""Trains two layers on TensorFlow for eight steps, recorded from the second on: tensorflow_job.py OUT"""

import sys

import numpy as np
import tensorflow as tf

from stepscope import Profiler, record_function

tf.random.set_seed(0)
first, second = (tf.Variable(tf.random.normal(shape)) for shape in ((32, 64), (64, 10)))
rows = tf.data.Dataset.from_tensor_slices((np.zeros((256, 32), np.float32), np.zeros(256, np.int64)))


@tf.function
def train(x, y):
    with tf.GradientTape() as tape:
        with tf.name_scope("hidden"):
            hidden = tf.nn.relu(x @ first)
        with tf.name_scope("loss"):
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, hidden @ second))
    for variable, gradient in zip((first, second), tape.gradient(loss, (first, second)), strict=True):
        variable.assign_sub(0.1 * gradient)


for number, (x, y) in enumerate(rows.map(lambda x, y: (x * 2, y)).batch(32)):
    if number == 1:
        profiler = Profiler(output_path=sys.argv[1], data_simplification=False, host_interval_ms=5)
    with record_function("train"):
        train(x, y)
    if number:
        profiler.step()
profiler.analyse()
