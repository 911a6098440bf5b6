# JAX's counter-based random bits.

@discrete threefry2x32(k1, k2, x1, x2) = threefry(k1, k2, x1, x2)

"Two words of a key and two counters, elementwise: 20 rounds of Threefry."
function threefry(k1, k2, x1, x2)
    pairs = broadcast(threefry_words, k1, k2, x1, x2)
    pairs isa Tuple && return pairs
    return map(first, pairs), map(last, pairs)
end

const ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))

# Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.
function threefry_words(k1::UInt32, k2::UInt32, x1::UInt32, x2::UInt32)
    keys = (k1, k2, Base.xor(k1, k2, 0x1bd11bda))
    x1 += keys[1]
    x2 += keys[2]
    for i in 1:5
        for r in ROTATIONS[isodd(i) ? 1 : 2]
            x1 += x2
            x2 = Base.xor(bitrotate(x2, r), x1)
        end
        x1 += keys[mod1(i + 1, 3)]
        x2 += keys[mod1(i + 2, 3)] + UInt32(i)
    end
    return x1, x2
end

"""
    iota_2x32_shape(Val(dims))

The high and the low words of the numbers from 0 in memory's order.
"""
@discrete iota_2x32_shape(::Val{dims}) where {dims} =
    counter_words(Base.reshape(UInt64(0):UInt64(prod(dims)) - UInt64(1), dims))
counter_words(numbers) =
    as_value((n -> (n >> 32) % UInt32).(numbers)), as_value((n -> n % UInt32).(numbers))
