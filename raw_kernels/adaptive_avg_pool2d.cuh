// Where window `output` of `outputs` begins and ends on an axis of `inputs` positions.

__device__ inline size_type first_of(size_type output, size_type inputs, size_type outputs)
{
    return output * inputs / outputs;
}

__device__ inline size_type end_of(size_type output, size_type inputs, size_type outputs)
{
    return ((output + 1) * inputs + outputs - 1) / outputs;
}
