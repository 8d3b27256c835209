#include "go_asm.h"
#include "textflag.h"
#include "wide_amd64.h"

// The loops of lendwide_amd64.go.

// OWN counts a use of the page of start i.
#define OWN(i) \
	MOVL (4*i)(SI)(DX*1), AX \
	SHRL $const_logPage, AX \
	INCL (R12)(AX*4)

// func lendWide(out *txFrame, starts *uint32, run *cqe, fours int, own *uint32, c *lendRules) (n int, bytes uint32)
//
//	BX completions   DI frames   SI starts   DX 16 bytes of these a four, negative
//	R12 own   X5 last   Y9 iova   X10 id; the rest is COMPLETIONS's
TEXT ·lendWide(SB), NOSPLIT, $0-60
	MOVQ out+0(FP), DI
	MOVQ starts+8(FP), SI
	MOVQ run+16(FP), BX
	MOVQ fours+24(FP), CX
	MOVQ own+32(FP), R12
	MOVQ c+40(FP), R8
	VPBROADCASTD lendRules_last(R8), X5
	VPBROADCASTQ lendRules_iova(R8), Y9
	VPBROADCASTD lendRules_id(R8), X10
	MOVQ lendRules_mask(R8), AX
	MOVQ lendRules_want(R8), R9
	MOVWLZX lendRules_head(R8), R10
	MOVL lendRules_limit(R8), R11
	EXPECT
	SHLQ $4, CX
	LEAQ (DI)(CX*8), DI
	ADDQ CX, SI
	MOVQ CX, DX
	NEGQ DX
	JEQ  done

loop:
	COMPLETIONS(done)
	VMOVDQU (SI)(DX*1), X4
	VPMINUD X5, X4, X6
	VPXOR X4, X6, X6
	VPOR X6, X3, X3
	VPTEST X3, X3
	JNE  done
	VPADDD X2, X14, X14
	VPADDQ Y15, Y12, Y12
	OWN(0)
	OWN(1)
	OWN(2)
	OWN(3)
	VPMOVZXDQ X4, Y0
	VPADDQ Y9, Y0, Y0
	VPSRLD $const_logPage, X4, X1
	VPOR X10, X1, X1
	VPUNPCKLDQ X1, X2, X3
	VPUNPCKHDQ X1, X2, X4
	VEXTRACTI128 $1, Y0, X1
	VMOVQ X0, (0*txFrame__size+txFrame_addr)(DI)(DX*8)
	VMOVHPS X0, (1*txFrame__size+txFrame_addr)(DI)(DX*8)
	VMOVQ X1, (2*txFrame__size+txFrame_addr)(DI)(DX*8)
	VMOVHPS X1, (3*txFrame__size+txFrame_addr)(DI)(DX*8)
	VMOVQ X3, (0*txFrame__size+txFrame_form)(DI)(DX*8)
	VMOVHPS X3, (1*txFrame__size+txFrame_form)(DI)(DX*8)
	VMOVQ X4, (2*txFrame__size+txFrame_form)(DI)(DX*8)
	VMOVHPS X4, (3*txFrame__size+txFrame_form)(DI)(DX*8)
	ADDQ $(4*cqe__size), BX
	ADDQ $16, DX
	JNE  loop

done:
	ADDQ DX, CX
	SHRQ $2, CX
	MOVQ CX, n+48(FP)
	VPHADDD X14, X14, X14
	VPHADDD X14, X14, X14
	VMOVD X14, AX
	MOVL AX, bytes+56(FP)
	VZEROUPPER
	RET

// func swapWide(starts *uint32, n int, mem *byte)
//
//	SI behind the last start   CX starts left, negative   DI mem
TEXT ·swapWide(SB), NOSPLIT, $0-24
	MOVQ starts+0(FP), SI
	MOVQ n+8(FP), CX
	MOVQ mem+16(FP), DI
	VMOVDQU macs<>(SB), X1
	LEAQ (SI)(CX*4), SI
	NEGQ CX

loop:
	MOVL (SI)(CX*4), AX
	VMOVDQU (DI)(AX*1), X0
	VPSHUFB X1, X0, X0
	VMOVDQU X0, (DI)(AX*1)
	INCQ CX
	JNE  loop
	RET
