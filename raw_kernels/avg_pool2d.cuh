// The elements along one axis that the divisor of an average pooling's window counts: those within the
// padded input with `count_include_pad`, else those within the input.

__device__ inline size_type window_extent(
    size_type output, size_type stride, size_type padding, size_type kernel, size_type inputs,
    size_type include_padding)
{
    size_type start = output * stride - padding, end = start + kernel;
    if (end > inputs + padding) end = inputs + padding;
    if (!include_padding) {
        if (start < 0) start = 0;
        if (end > inputs) end = inputs;
    }
    return end - start;
}
