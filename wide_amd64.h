// What the loops in wide registers over received completions share: constants, and
// the check of four completions at once. Each file that includes this has its own.

// swap8<> and swap4<> reverse the bytes of quadwords and doublewords.
DATA swap8<>+0(SB)/8, $0x0001020304050607
DATA swap8<>+8(SB)/8, $0x08090a0b0c0d0e0f
DATA swap8<>+16(SB)/8, $0x0001020304050607
DATA swap8<>+24(SB)/8, $0x08090a0b0c0d0e0f
GLOBL swap8<>(SB), RODATA|NOPTR, $32

DATA swap4<>+0(SB)/8, $0x0405060700010203
DATA swap4<>+8(SB)/8, $0x0c0d0e0f08090a0b
GLOBL swap4<>(SB), RODATA|NOPTR, $16

// count<> is what four WQE counters in a row add to a tail with its bytes
// reversed, and four<> what the next four add to that. A carry goes to bits that
// nobody looks at.
DATA count<>+0(SB)/8, $0x00000
DATA count<>+8(SB)/8, $0x10000
DATA count<>+16(SB)/8, $0x20000
DATA count<>+24(SB)/8, $0x30000
GLOBL count<>(SB), RODATA|NOPTR, $32

DATA four<>+0(SB)/8, $0x40000
DATA four<>+8(SB)/8, $0x40000
DATA four<>+16(SB)/8, $0x40000
DATA four<>+24(SB)/8, $0x40000
GLOBL four<>(SB), RODATA|NOPTR, $32

// macs<> exchanges the first two addresses of 6 bytes.
DATA macs<>+0(SB)/8, $0x01000b0a09080706
DATA macs<>+8(SB)/8, $0x0f0e0d0c05040302
GLOBL macs<>(SB), RODATA|NOPTR, $16

// EXPECT prepares COMPLETIONS from what of a tail counts (AX), what the first has
// but for its counter (R9), that counter (R10) and the largest size (R11):
//
//	Y7 swap8   X8 swap4   Y11 mask   Y12 tails wanted   X13 limit   X14 bytes   Y15 four
#define EXPECT \
	VMOVDQU swap8<>(SB), Y7 \
	VMOVDQU swap4<>(SB), X8 \
	BSWAPQ AX \
	VMOVQ AX, X11 \
	VPBROADCASTQ X11, Y11 \
	BSWAPQ R9 \
	SHLQ $16, R10 \
	ADDQ R10, R9 \
	VMOVQ R9, X12 \
	VPBROADCASTQ X12, Y12 \
	VPADDQ count<>(SB), Y12, Y12 \
	VMOVD R11, X13 \
	VPBROADCASTD X13, X13 \
	VPXOR X14, X14, X14 \
	VMOVDQU four<>(SB), Y15

// COMPLETIONS goes to done unless the four from BX on have the tails wanted, each
// of which is loaded first and in one piece. X2 are their sizes, X3 is not zero
// where one is beyond the limit.
#define COMPLETIONS(done) \
	VMOVQ (0*cqe__size+cqe_tail)(BX), X0 \
	VMOVHPS (1*cqe__size+cqe_tail)(BX), X0, X0 \
	VMOVQ (2*cqe__size+cqe_tail)(BX), X1 \
	VMOVHPS (3*cqe__size+cqe_tail)(BX), X1, X1 \
	VINSERTI128 $1, X1, Y0, Y0 \
	VPSHUFB Y7, Y0, Y0 \
	VPXOR Y12, Y0, Y0 \
	VPTEST Y11, Y0 \
	JNE  done \
	VMOVD (0*cqe__size+cqe_byteCount)(BX), X2 \
	VPINSRD $1, (1*cqe__size+cqe_byteCount)(BX), X2, X2 \
	VPINSRD $2, (2*cqe__size+cqe_byteCount)(BX), X2, X2 \
	VPINSRD $3, (3*cqe__size+cqe_byteCount)(BX), X2, X2 \
	VPSHUFB X8, X2, X2 \
	VPMINUD X13, X2, X3 \
	VPXOR X2, X3, X3
