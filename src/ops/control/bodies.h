// SPDX-License-Identifier: Apache-2.0
// Branches, loops and checkpoints take sub-graphs apart and put them together again by these functions.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "paoding/op.h"

namespace paoding {

/// The types that a call of one body has: its fetches'. Fails where the body does not fit the inputs of the call or
/// fetches nothing.
std::vector<Type> infer_from_body(const OpCall& call);

/// An input of a body in the making, and the values of the old graph that it stands for.
struct BodyInput {
  Type type;
  std::vector<Ref> stands_for = {};
  std::string name = {};  // made up where empty or taken
};

/// A body with exactly these inputs that fetches these values of `from`. It has the nodes of `from` that the fetches
/// and nodes with an effect need, less those that an input stands for.
std::shared_ptr<Graph> rebuild_body(const Graph& from, const std::vector<BodyInput>& inputs,
                                    const std::vector<Ref>& fetches);

/// Which inputs of a body its nodes and fetches read.
std::vector<bool> read_inputs(const Graph& body);

/// Copies the nodes that `wanted` (values of `from`) need into `to`. `known` gives values that are there already, all
/// inputs that matter among them; the copies are added to it. Nodes keep their scope and get `to`'s origin where they
/// have none.
void copy_into(Graph* to, const Graph& from, const std::vector<Ref>& wanted, std::map<Ref, Ref>* known);

/// Differentiating a copy of a body can make nodes in it (scans, branches) save more than before; `original` follows.
void adopt_saved_outputs(const Graph& copy, Graph* original, NodeId size);

/// A new name for an input of `body` that begins with `stem`.
std::string free_input_name(Graph& body, std::string stem);

}  // namespace paoding
