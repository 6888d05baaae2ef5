// Where elements lie in an array (states, sets, hidden, batch), as states of all walks do. A walk is a sample's with
// one of the sets of weights, which are heads of a layer; kernels take `walks`, which is sets * batch.

// Element 0 of a walk.
__device__ __forceinline__ size_type start_of(size_type set, size_type sample, int hidden, size_type batch)
{
    return set * hidden * batch + sample;
}

// A unit's element of a state, of the walk whose element 0 lies at `start`.
__device__ __forceinline__ size_type element_of(
    int state, int unit, size_type start, int hidden, size_type walks, size_type batch)
{
    return state * (hidden * walks) + unit * batch + start;
}

// Element i of all states of that walk, one state's behind the other's.
__device__ __forceinline__ size_type element_of(
    int i, size_type start, int hidden, size_type walks, size_type batch)
{
    return element_of(i / hidden, i % hidden, start, hidden, walks, batch);
}
