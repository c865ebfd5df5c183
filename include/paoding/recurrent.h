/* SPDX-License-Identifier: Apache-2.0 */
/* Recurrent layers over time without a graph, in plain C: the kernels that programs run, on memory and in a stream of
 * the caller's. A plan is made once for a layer and a device; its calls then only launch. On a GPU everything goes into
 * the stream that is given, nothing is allocated or waited for, and so a call may be captured into a CUDA graph.
 *
 *   pd_recurrent_layer layer = {.cell = PD_LSTM, .number = PD_F32, .device = "cuda",
 *                               .steps = 64, .batch = 8, .inputs = 512, .hidden = 512};
 *   pd_recurrent_plan* plan;
 *   if (pd_recurrent_create(&layer, &plan) != PD_OK) puts(pd_last_error());
 *
 * A plan keeps nothing of what it reads: every call takes weights and all else anew from where its arguments are, which
 * may have been written, moved or given back between calls by whatever means.
 *
 * Plans do not depend on each other: threads may use different ones at the same time. One plan is used by one thread at
 * a time, and its calls in one stream, or in streams that wait for each other. A call that is captured writes nothing
 * but the memory that it was given: graphs of one plan may run at the same time, and beside its calls, as long as they
 * have workspaces of their own, and the plan is there.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The gates of w, u and b, of G = 4, 3 or 1, lie in this order along the last axis. */
typedef enum pd_cell {
  PD_LSTM = 0,     /* i, f, g, o: c' = f c + i g, h' = o tanh(c') */
  PD_GRU = 1,      /* r, z, n: h' = n + z (h - n), n = tanh(x w_n + b_n + r (h u_n + b_m)); b has b_m after b_n */
  PD_RNN_TANH = 2, /* h' = tanh(x w + h u + b) */
  PD_RNN_RELU = 3
} pd_cell;

typedef enum pd_number { PD_F32 = 0, PD_F64 = 1, PD_BF16 = 2, PD_F16 = 3 } pd_number;

typedef enum pd_status {
  PD_OK = 0,
  PD_ERROR_ARGUMENT = 1,    /* a pointer that is missing, an extent or a name out of range */
  PD_ERROR_UNSUPPORTED = 2, /* legal, but nothing runs it on the device */
  PD_ERROR_DEVICE = 3,      /* there is no such device, or it failed */
  PD_ERROR_MEMORY = 4,      /* of the host */
  PD_ERROR_INTERNAL = 5
} pd_status;

/* Fields that are 0 stand for no. */
typedef struct pd_recurrent_layer {
  pd_cell cell;
  pd_number number;   /* of everything but the cell state of an LSTM in 16 bits, which is f32 */
  const char* device; /* "cpu", "cuda" or "cuda:N" */
  int64_t steps, batch, inputs, hidden;
  int has_lengths; /* rows of the batch have lengths of their own */
  int is_reverse;  /* from the last step to the first */
  int is_training; /* the forward pass saves what the backward pass needs */
  int allow_tf32;  /* products of f32 may round what they multiply to TF32, on a GPU */
  int gates_first; /* w, u and their gradients are [G H, I] and [G H, H], as PyTorch keeps them */
  int two_biases;  /* b and d_b are [G H], of x w; b_hh and d_b_hh are those of h u, as PyTorch keeps them */
  int is_first;    /* nobody wants d_x, which then is not worked out */
} pd_recurrent_layer;

typedef struct pd_recurrent_plan pd_recurrent_plan;

/* Bytes of the device's memory. */
typedef struct pd_recurrent_sizes {
  size_t forward_workspace, backward_workspace; /* while a call runs; the second 0 unless is_training */
  size_t saved;                                 /* from a forward pass to its backward pass */
} pd_recurrent_sizes;

/* Memory of the device, dense, aligned to 64 bytes on a CPU and to 256 on a GPU, as what is allocated there is. T, B, I
 * and H are the layer's steps, batch, inputs and hidden. */
typedef struct pd_recurrent_forward_args {
  const void *x, *w, *u, *b; /* [T, B, I], [I, G H], [H, G H], [G H]; of a GRU b [4 H] */
  const void *h0, *c0;       /* [B, H]; c0 of an LSTM only */
  const int32_t*
      lengths;  /* [B], with has_lengths: states after a row's end are 0, and its last state is that of its end */
  void* states; /* [T + 1, B, H]: h0 in front of what the steps leave; reverse: after */
  void *last_h, *last_c; /* [B, H], or null where nobody wants them */
  void* saved;           /* with is_training */
  void* workspace;
  const void* b_hh; /* with two_biases */
  /* [T + 1, B, H], of an LSTM: the cells, c0 first (f32 where numbers have 16 bits). They have a place of their own
   * here, and `saved` has the gates alone; null: `saved` has both. */
  void* saved_cells;
} pd_recurrent_forward_args;

typedef struct pd_recurrent_backward_args {
  const void *x, *w, *u, *h0; /* as in the forward pass; so are lengths, */
  const int32_t* lengths;
  const void *states, *saved;                /* and these are what it left */
  const void* d_states;                      /* [T, B, H]: the gradient of what the steps leave, or null for 0 */
  const void *d_last_h, *d_last_c;           /* [B, H], or null for 0 */
  void *d_x, *d_w, *d_u, *d_b, *d_h0, *d_c0; /* null where nobody wants them */
  void* workspace;
  void* d_b_hh;            /* with two_biases; null where nobody wants it */
  const void* saved_cells; /* as in the forward pass */
} pd_recurrent_backward_args;

/* Makes a plan, and on a GPU compiles and loads its kernels, which are kept on disk for the next time. */
pd_status pd_recurrent_create(const pd_recurrent_layer* layer, pd_recurrent_plan** plan);
/* Null is no error. On a GPU what was enqueued has to be done. */
void pd_recurrent_destroy(pd_recurrent_plan* plan);
pd_status pd_recurrent_get_sizes(const pd_recurrent_plan* plan, pd_recurrent_sizes* sizes);
/* What a plan launches, as text; valid as long as the plan. */
const char* pd_recurrent_describe(const pd_recurrent_plan* plan);

/* `stream`: a cudaStream_t or CUstream of the device; not looked at on a CPU, where the call returns when it is done.
 * No two of the arguments may overlap. */
pd_status pd_recurrent_forward(pd_recurrent_plan* plan, const pd_recurrent_forward_args* args, void* stream);
pd_status pd_recurrent_backward(pd_recurrent_plan* plan, const pd_recurrent_backward_args* args, void* stream);

/* What went wrong in this thread's last call that did not return PD_OK. */
const char* pd_last_error(void);

#ifdef __cplusplus
}
#endif
