#pragma once
// Names that tell a reader what a task computes.

#include <string>
#include <vector>

#include "ir/graph.h"

namespace stitch::plan {

// The word for one node: its op, or something closer: "depthwise_conv2d", "conv_transpose3d", "square", "selu", "matvec".
std::string word_for(const ir::Graph&, const ir::Node&);

// "conv2d_relu", "layer_norm_linear_gelu": the words of a task's nodes in order, views left out, repeats once. Of more than four, the reductions and
// products are kept first, then the earliest others, and the number of the rest is added: "sub_square_mean_and_5_more".
std::string describe_nodes(const ir::Graph&, const std::vector<int32_t>& nodes);

// What a task's name says behind its number. A task that does nothing but change state is named after it ("update_bn_num_batches_tracked"); others
// after their nodes.
std::string describe_task(const ir::Graph&, const std::vector<int32_t>& nodes, const std::vector<ir::ValueRef>& outputs);

}  // namespace stitch::plan
