/* SPDX-License-Identifier: Apache-2.0 */
/* The C interface as C code uses it: an LSTM against loops over single numbers, its gradients against differences. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "paoding/recurrent.h"

enum { T = 4, B = 3, I = 5, H = 2, G = 4 };

static char said[512];
#define NEED(condition)                                                                              \
  do {                                                                                               \
    if (!(condition)) {                                                                              \
      snprintf(said, sizeof said, "line %d: %s; last error: %s", __LINE__, #condition, pd_last_error()); \
      return said;                                                                                   \
    }                                                                                                \
  } while (0)

static double* numbers(size_t count) { return aligned_alloc(64, (count * sizeof(double) + 63) / 64 * 64); }

static double* random_numbers(size_t count, unsigned seed) {
  double* made = numbers(count);
  for (size_t i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    made[i] = ((seed >> 8) % 2001) / 1000.0 - 1.0;
  }
  return made;
}

static double sigmoid(double a) { return 1 / (1 + exp(-a)); }

/* What an LSTM leaves, one number after the other. */
static void expected_states(const pd_recurrent_forward_args* a, double* states) {
  const double *x = a->x, *w = a->w, *u = a->u, *b = a->b, *h0 = a->h0, *c0 = a->c0;
  memcpy(states, h0, B * H * sizeof(double));
  double c[B * H];
  memcpy(c, c0, sizeof c);
  for (int t = 0; t < T; ++t) {
    for (int row = 0; row < B; ++row) {
      const double* h = states + (t * B + row) * H;
      for (int j = 0; j < H; ++j) {
        double gate[G];
        for (int k = 0; k < G; ++k) {
          const int column = k * H + j;
          gate[k] = b[column];
          for (int i = 0; i < I; ++i) gate[k] += x[(t * B + row) * I + i] * w[i * G * H + column];
          for (int i = 0; i < H; ++i) gate[k] += h[i] * u[i * G * H + column];
        }
        double* cell = c + row * H + j;
        *cell = sigmoid(gate[1]) * *cell + sigmoid(gate[0]) * tanh(gate[2]);
        states[((t + 1) * B + row) * H + j] = sigmoid(gate[3]) * tanh(*cell);
      }
    }
  }
}

static double loss_of(const double* states) {
  double loss = 0;
  for (int i = B * H; i < (T + 1) * B * H; ++i) loss += states[i] * states[i];
  return loss;
}

/* Null when everything is as it should be. */
const char* check_recurrent_from_c(void) {
  const pd_recurrent_layer layer = {
      .cell = PD_LSTM, .number = PD_F64, .device = "cpu", .steps = T, .batch = B, .inputs = I, .hidden = H, .is_training = 1};
  pd_recurrent_plan* plan = NULL;
  NEED(pd_recurrent_create(&layer, &plan) == PD_OK);
  pd_recurrent_sizes sizes;
  NEED(pd_recurrent_get_sizes(plan, &sizes) == PD_OK);
  NEED(sizes.saved >= (T * B * 4 * H + (T + 1) * B * H) * sizeof(double));
  NEED(strstr(pd_recurrent_describe(plan), "backward") != NULL);

  double *x = random_numbers(T * B * I, 1), *w = random_numbers(I * G * H, 2), *u = random_numbers(H * G * H, 3);
  double *b = random_numbers(G * H, 4), *h0 = random_numbers(B * H, 5), *c0 = random_numbers(B * H, 6);
  double *states = numbers((T + 1) * B * H), *wanted = numbers((T + 1) * B * H), *last_c = numbers(B * H);
  double *d_states = numbers(T * B * H), *d_x = numbers(T * B * I), *d_u = numbers(H * G * H), *d_c0 = numbers(B * H);
  void *saved = numbers(sizes.saved / 8 + 8);
  void *workspace = numbers(sizes.forward_workspace / 8 + 8), *more = numbers(sizes.backward_workspace / 8 + 8);
  pd_recurrent_forward_args forward = {.x = x, .w = w, .u = u, .b = b, .h0 = h0, .c0 = c0, .states = states,
                                       .last_c = last_c, .saved = saved, .workspace = workspace};
  NEED(pd_recurrent_forward(plan, &forward, NULL) == PD_OK);
  expected_states(&forward, wanted);
  for (int i = 0; i < (T + 1) * B * H; ++i) NEED(fabs(states[i] - wanted[i]) < 1e-12);

  for (int i = 0; i < T * B * H; ++i) d_states[i] = 2 * states[B * H + i];
  const pd_recurrent_backward_args backward = {.x = x, .w = w, .u = u, .h0 = h0, .states = states, .saved = saved,
                                               .d_states = d_states, .d_x = d_x, .d_u = d_u, .d_c0 = d_c0,
                                               .workspace = more};
  NEED(pd_recurrent_backward(plan, &backward, NULL) == PD_OK);
  const struct {
    double *values, *gradients;
    int count;
  } each[] = {{x, d_x, T * B * I}, {u, d_u, H * G * H}, {c0, d_c0, B * H}};
  for (int k = 0; k < 3; ++k) {
    for (int i = 0; i < each[k].count; ++i) {
      const double value = each[k].values[i], by = 1e-6;
      each[k].values[i] = value + by;
      expected_states(&forward, wanted);
      const double above = loss_of(wanted);
      each[k].values[i] = value - by;
      expected_states(&forward, wanted);
      const double difference = (above - loss_of(wanted)) / (2 * by);
      each[k].values[i] = value;
      NEED(fabs(each[k].gradients[i] - difference) < 1e-7 * (1 + fabs(difference)));
    }
  }

  forward.u = NULL;
  NEED(pd_recurrent_forward(plan, &forward, NULL) == PD_ERROR_ARGUMENT);
  NEED(strstr(pd_last_error(), "u is null") != NULL);
  pd_recurrent_destroy(plan);
  void* all[] = {x, w, u, b, h0, c0, states, wanted, last_c, d_states, d_x, d_u, d_c0, saved, workspace, more};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) free(all[i]);
  return NULL;
}
