#include "go_asm.h"
#include "textflag.h"
#include "wide_amd64.h"

// The loops of xskwide_amd64.go. Two entries of the RX or TX ring fill one register
// Y, four addresses of the fill or completion ring another:
//
//	doublewords of an entry   0, 1: addr   2: len   3: options
//
// Where a loop takes fours, pointers stand behind the last one and DX, negative, is
// what is left to do. A limit is checked as in burst_amd64.s: what differs from its
// unsigned minimum with the limit is beyond it. Upper halves have limit 0, so that
// one comparison of doublewords does for an address of 64 bits too.

// order<> makes a data segment of an entry, lkey left out: both are big endian.
DATA order<>+0(SB)/8, $0x8080808008090a0b
DATA order<>+8(SB)/8, $0x0001020304050607
DATA order<>+16(SB)/8, $0x8080808008090a0b
DATA order<>+24(SB)/8, $0x0001020304050607
GLOBL order<>(SB), RODATA|NOPTR, $32

// header<> takes the least size from an entry's len.
DATA header<>+0(SB)/8, $0
DATA header<>+8(SB)/8, $0x00000000fffffff2 // -etherHeader
DATA header<>+16(SB)/8, $0
DATA header<>+24(SB)/8, $0x00000000fffffff2
GLOBL header<>(SB), RODATA|NOPTR, $32

// func descsWide(out *seg, comp *uint64, descs *xdpDesc, fours int, c *descRules) (n int, bytes uint32)
//
//	BX entries   DI segments   SI completion entries   DX 32 bytes of these a four
//	Y7 limits of addr and len   Y8 frame   Y9 place in a frame   Y10 key
//	Y11 base   Y12 order   Y13 header   Y14 bytes, in doubleword 2 of both halves
TEXT ·descsWide(SB), NOSPLIT, $0-52
	MOVQ out+0(FP), DI
	MOVQ comp+8(FP), SI
	MOVQ descs+16(FP), BX
	MOVQ fours+24(FP), CX
	MOVQ c+32(FP), R8
	MOVQ descRules_size(R8), AX
	DECQ AX
	VMOVQ AX, X7
	MOVL descRules_fit(R8), AX
	VPINSRQ $1, AX, X7, X7
	VINSERTI128 $1, X7, Y7, Y7
	MOVL descRules_frame(R8), AX
	VMOVD AX, X8
	VPBROADCASTD X8, Y8
	MOVQ $0xffffffff00000000, R9
	DECL AX
	ORQ  R9, AX
	VMOVQ AX, X9
	VPBROADCASTQ X9, Y9
	VMOVQ descRules_key(R8), X10
	VINSERTI128 $1, X10, Y10, Y10
	VMOVQ descRules_base(R8), X11
	VINSERTI128 $1, X11, Y11, Y11
	VMOVDQU order<>(SB), Y12
	VMOVDQU header<>(SB), Y13
	VPXOR Y14, Y14, Y14
	SHLQ $5, CX
	LEAQ (BX)(CX*2), BX
	LEAQ (DI)(CX*2), DI
	ADDQ CX, SI
	MOVQ CX, DX
	NEGQ DX
	JEQ  done

loop:
	VMOVDQU (BX)(DX*2), Y0
	VMOVDQU 32(BX)(DX*2), Y1
	VPADDD Y13, Y0, Y2
	VPADDD Y13, Y1, Y3
	VPMINUD Y7, Y2, Y4
	VPMINUD Y7, Y3, Y5
	VPXOR Y4, Y2, Y2
	VPXOR Y5, Y3, Y3
	VPOR Y3, Y2, Y2
	VSHUFPS $0x88, Y1, Y0, Y4 // addr and len of all, in turn
	VPAND Y9, Y4, Y4
	VPHADDD Y4, Y4, Y4
	VPMINUD Y8, Y4, Y5
	VPXOR Y5, Y4, Y4
	VPOR Y4, Y2, Y2
	VPTEST Y2, Y2
	JNE  done
	VPADDD Y0, Y14, Y14
	VPADDD Y1, Y14, Y14
	VPUNPCKLQDQ Y1, Y0, Y2
	VPERMQ $0xd8, Y2, Y2
	VMOVDQU Y2, (SI)(DX*1)
	VPADDQ Y11, Y0, Y0
	VPADDQ Y11, Y1, Y1
	VPSHUFB Y12, Y0, Y0
	VPSHUFB Y12, Y1, Y1
	VPOR Y10, Y0, Y0
	VPOR Y10, Y1, Y1
	VMOVDQU Y0, (DI)(DX*2)
	VMOVDQU Y1, 32(DI)(DX*2)
	ADDQ $32, DX
	JNE  loop

done:
	ADDQ DX, CX
	SHRQ $3, CX
	MOVQ CX, n+40(FP)
	VEXTRACTI128 $1, Y14, X0
	VPADDD X0, X14, X0
	VPEXTRD $2, X0, AX
	MOVL AX, bytes+48(FP)
	VZEROUPPER
	RET

// func takeWide(descs *xdpDesc, frames *uint32, run *cqe, fours int, c *takeRules) (n int, bytes uint32)
//
//	BX completions   DI entries   SI frames   DX 16 bytes of these a four
//	Y7 swap8   X8 swap4   Y9 start   X10 log   Y11 mask   Y12 tails wanted   X13 limit
//	X14 bytes   Y15 four
TEXT ·takeWide(SB), NOSPLIT, $0-52
	MOVQ descs+0(FP), DI
	MOVQ frames+8(FP), SI
	MOVQ run+16(FP), BX
	MOVQ fours+24(FP), CX
	MOVQ c+32(FP), R8
	MOVL takeRules_start(R8), AX
	VMOVQ AX, X9
	VPBROADCASTQ X9, Y9
	MOVBLZX takeRules_log(R8), AX
	VMOVQ AX, X10
	MOVQ takeRules_mask(R8), AX
	MOVQ takeRules_want(R8), R9
	MOVWLZX takeRules_head(R8), R10
	MOVL takeRules_limit(R8), R11
	EXPECT
	SHLQ $4, CX
	LEAQ (DI)(CX*4), DI
	ADDQ CX, SI
	MOVQ CX, DX
	NEGQ DX
	JEQ  done

loop:
	COMPLETIONS(done)
	VPTEST X3, X3
	JNE  done
	VPADDD X2, X14, X14
	VPADDQ Y15, Y12, Y12
	VPMOVZXDQ (SI)(DX*1), Y4
	VPSLLQ X10, Y4, Y4
	VPADDQ Y9, Y4, Y4
	VPMOVZXDQ X2, Y2
	VPUNPCKLQDQ Y2, Y4, Y3
	VPUNPCKHQDQ Y2, Y4, Y5
	VMOVDQU X3, (0*xdpDesc__size)(DI)(DX*4)
	VMOVDQU X5, (1*xdpDesc__size)(DI)(DX*4)
	VEXTRACTI128 $1, Y3, (2*xdpDesc__size)(DI)(DX*4)
	VEXTRACTI128 $1, Y5, (3*xdpDesc__size)(DI)(DX*4)
	ADDQ $(4*cqe__size), BX
	ADDQ $16, DX
	JNE  loop

done:
	ADDQ DX, CX
	SHRQ $2, CX
	MOVQ CX, n+40(FP)
	VPHADDD X14, X14, X14
	VPHADDD X14, X14, X14
	VMOVD X14, AX
	MOVL AX, bytes+48(FP)
	VZEROUPPER
	RET

// func postWide(segs *seg, frames *uint32, addrs *uint64, fours int, c *postRules) (n int)
//
//	BX addresses   DI segments   SI frames   DX 16 bytes of these a four
//	R10 bytes of a WQE, R11 of three
//	Y7 swap8   X8 log   Y9 base   Y10 word   Y12 last frame
TEXT ·postWide(SB), NOSPLIT, $0-48
	MOVQ segs+0(FP), DI
	MOVQ frames+8(FP), SI
	MOVQ addrs+16(FP), BX
	MOVQ c+32(FP), R8
	MOVBLZX postRules_logStep(R8), CX
	MOVL $seg__size, R10
	SHLQ CX, R10
	LEAQ (R10)(R10*2), R11
	MOVQ fours+24(FP), CX
	VMOVDQU swap8<>(SB), Y7
	MOVBLZX postRules_log(R8), AX
	VMOVQ AX, X8
	VPBROADCASTQ postRules_base(R8), Y9
	VPBROADCASTQ postRules_word(R8), Y10
	MOVL postRules_frames(R8), AX
	DECL AX
	VMOVQ AX, X12
	VPBROADCASTQ X12, Y12
	SHLQ $4, CX
	LEAQ (BX)(CX*2), BX
	ADDQ CX, SI
	MOVQ CX, DX
	NEGQ DX
	JEQ  done

loop:
	VMOVDQU (BX)(DX*2), Y0
	VPSRLQ X8, Y0, Y0
	VPMINUD Y12, Y0, Y1
	VPXOR Y0, Y1, Y1
	VPTEST Y1, Y1
	JNE  done
	VEXTRACTI128 $1, Y0, X2
	VSHUFPS $0x88, X2, X0, X2
	VMOVDQU X2, (SI)(DX*1)
	VPSLLQ X8, Y0, Y0
	VPADDQ Y9, Y0, Y0
	VPSHUFB Y7, Y0, Y0
	VPUNPCKLQDQ Y0, Y10, Y1
	VPUNPCKHQDQ Y0, Y10, Y2
	VMOVDQU X1, (DI)
	VMOVDQU X2, (DI)(R10*1)
	VEXTRACTI128 $1, Y1, (DI)(R10*2)
	VEXTRACTI128 $1, Y2, (DI)(R11*1)
	LEAQ (DI)(R10*4), DI
	ADDQ $16, DX
	JNE  loop

done:
	ADDQ DX, CX
	SHRQ $2, CX
	MOVQ CX, n+40(FP)
	VZEROUPPER
	RET

// func wholeWide(out, in *uint64, fours int, whole uint64)
TEXT ·wholeWide(SB), NOSPLIT, $0-32
	MOVQ out+0(FP), DI
	MOVQ in+8(FP), SI
	MOVQ fours+16(FP), DX
	VPBROADCASTQ whole+24(FP), Y1
	SHLQ $5, DX
	ADDQ DX, DI
	ADDQ DX, SI
	NEGQ DX
	JEQ  done

loop:
	VPAND (SI)(DX*1), Y1, Y0
	VMOVDQU Y0, (DI)(DX*1)
	ADDQ $32, DX
	JNE  loop

done:
	VZEROUPPER
	RET

// func describeWide(out *xdpDesc, frames *uint64, fours int, size uint32)
TEXT ·describeWide(SB), NOSPLIT, $0-28
	MOVQ out+0(FP), DI
	MOVQ frames+8(FP), SI
	MOVQ fours+16(FP), DX
	MOVL size+24(FP), AX
	VMOVQ AX, X3
	VPBROADCASTQ X3, Y3
	SHLQ $5, DX
	LEAQ (DI)(DX*2), DI
	ADDQ DX, SI
	NEGQ DX
	JEQ  done

loop:
	VPERMQ $0xd8, (SI)(DX*1), Y0
	VPUNPCKLQDQ Y3, Y0, Y1
	VPUNPCKHQDQ Y3, Y0, Y2
	VMOVDQU Y1, (DI)(DX*2)
	VMOVDQU Y2, 32(DI)(DX*2)
	ADDQ $32, DX
	JNE  loop

done:
	VZEROUPPER
	RET

// func dropWide(addrs *uint64, descs *xdpDesc, fours int, whole uint64) (more, bytes uint64)
//
//	Y10 whole   Y11 len's half   Y12 xdpContinue   Y13 more   Y14 bytes
TEXT ·dropWide(SB), NOSPLIT, $0-48
	MOVQ addrs+0(FP), DI
	MOVQ descs+8(FP), BX
	MOVQ fours+16(FP), DX
	VPBROADCASTQ whole+24(FP), Y10
	VPCMPEQD Y11, Y11, Y11
	VPSRLQ $32, Y11, Y11
	VPSRLQ $31, Y11, Y12
	VPXOR Y13, Y13, Y13
	VPXOR Y14, Y14, Y14
	SHLQ $5, DX
	LEAQ (BX)(DX*2), BX
	ADDQ DX, DI
	NEGQ DX
	JEQ  done

loop:
	VMOVDQU (BX)(DX*2), Y0
	VMOVDQU 32(BX)(DX*2), Y1
	VPUNPCKLQDQ Y1, Y0, Y2
	VPUNPCKHQDQ Y1, Y0, Y3
	VPERMQ $0xd8, Y2, Y2
	VPAND Y10, Y2, Y2
	VMOVDQU Y2, (DI)(DX*1)
	VPAND Y11, Y3, Y4
	VPADDQ Y4, Y14, Y14
	VPSRLQ $32, Y3, Y3
	VPAND Y12, Y3, Y3
	VPADDQ Y3, Y13, Y13
	ADDQ $32, DX
	JNE  loop

done:
	VPUNPCKLQDQ Y14, Y13, Y0
	VPUNPCKHQDQ Y14, Y13, Y1
	VPADDQ Y1, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPADDQ X1, X0, X0
	VMOVDQU X0, more+32(FP)
	VZEROUPPER
	RET

// func forwardWide(out, in *xdpDesc, n int, mem *byte, last uint64) (done int, bytes uint64)
//
//	BX, DI entries   DX 16 bytes of these each, negative   AX addr, R8 len and options
//	R9 last   R10 len's half   R11 mem   R12 bytes
TEXT ·forwardWide(SB), NOSPLIT, $0-56
	MOVQ out+0(FP), DI
	MOVQ in+8(FP), BX
	MOVQ n+16(FP), CX
	MOVQ mem+24(FP), R11
	MOVQ last+32(FP), R9
	MOVL $0xffffffff, R10
	XORL R12, R12
	VMOVDQU macs<>(SB), X1
	SHLQ $4, CX
	ADDQ CX, BX
	ADDQ CX, DI
	MOVQ CX, DX
	NEGQ DX
	JEQ  done

loop:
	MOVQ xdpDesc_addr(BX)(DX*1), AX
	MOVQ xdpDesc_len(BX)(DX*1), R8
	CMPQ AX, R9
	JCC  done
	CMPQ R8, R10
	JHI  done
	VMOVDQU (R11)(AX*1), X0
	VPSHUFB X1, X0, X0
	VMOVDQU X0, (R11)(AX*1)
	MOVQ AX, xdpDesc_addr(DI)(DX*1)
	MOVQ R8, xdpDesc_len(DI)(DX*1)
	ADDQ R8, R12
	ADDQ $16, DX
	JNE  loop

done:
	ADDQ DX, CX
	SHRQ $4, CX
	MOVQ CX, done+40(FP)
	MOVQ R12, bytes+48(FP)
	VZEROUPPER
	RET
