// SPDX-License-Identifier: Apache-2.0
// Teams that exchange through global memory, that is, through L2: any CTAs that run at once, for weights that are more
// than a cluster has room for, and for GPUs without clusters. What is there is told by the data themselves: a flag beside
// them would be seen only after a second trip. All CTAs of a cooperative launch run, so what a step needs comes whatever
// happens.

PD_DEVICE int rank_in_team() { return blockIdx.x % kTeam; }
