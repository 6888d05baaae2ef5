// Where elements lie in the arrays of walks: (batch, states, sets, hidden), units innermost, so that neighbouring lanes
// of a warp, which are units, read neighbouring elements. A walk is a sample's with one of the sets of weights, which are
// heads of a layer; kernels take `walks`, which is sets * batch.

// Element 0 of a walk in an array of so many states.
__device__ __forceinline__ size_type start_of(
    int states, size_type set, size_type sample, int hidden, size_type sets)
{
    return (sample * states * sets + set) * hidden;
}

// Element i of all states of the walk whose element 0 lies at `start`, one state's behind the other's.
__device__ __forceinline__ size_type element_of(int i, size_type start, int hidden, size_type sets)
{
    return start + i / hidden * (sets * hidden) + i % hidden;
}
