// Philox4x32-10 (Salmon et al. 2011): four random 32-bit numbers from a counter of 128 bits, 64 of them `group`,
// and a key of 64 bits. Equal arguments give equal numbers on every device.

__device__ inline void philox_round(unsigned int c[4], unsigned int k0, unsigned int k1)
{
    const unsigned long long even = 0xD2511F53ull * c[0], odd = 0xCD9E8D57ull * c[2];
    c[0] = (unsigned int)(odd >> 32) ^ c[1] ^ k0;
    c[1] = (unsigned int)odd;
    c[2] = (unsigned int)(even >> 32) ^ c[3] ^ k1;
    c[3] = (unsigned int)even;
}

__device__ inline void philox(
    unsigned int numbers[4], size_type group, unsigned int first, unsigned int second, size_type key)
{
    unsigned int k0 = (unsigned int)key, k1 = (unsigned int)((unsigned long long)key >> 32);
    numbers[0] = (unsigned int)group;
    numbers[1] = (unsigned int)((unsigned long long)group >> 32);
    numbers[2] = first;
    numbers[3] = second;
    for (int round = 0; round < 10; round++) {
        philox_round(numbers, k0, k1);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}
