#include "go_asm.h"
#include "textflag.h"

// The loops of burst_amd64.go. A frame fills one register Y, and a burst is taken
// in fours where that shares work:
//
//	quadwords of a frame   0: addr   1, 2: eseg   3: form (low half), page (high)
//
// Common registers:
//
//	BX  behind the last four frames, SI their refs, DI their segments
//	DX  16 bytes of refs a four, negative: what is left to do. A four has 64 bytes
//	    of segments and 128 of frames, so DX leads to these as well
//	R9  the first frame, whose eseg all others must have
//	Y0-Y3  four frames     X6  their forms     X7  their pages
//	X10 lkey where a data segment has it       X11 order of a data segment's bytes
//	X12 etherHeader, negated, four times       X13 limit, four times
//	X14 bytes, four sums

// eseg<> covers the eth segment of a frame.
DATA eseg<>+0(SB)/8, $0
DATA eseg<>+8(SB)/8, $-1
DATA eseg<>+16(SB)/8, $-1
DATA eseg<>+24(SB)/8, $0
GLOBL eseg<>(SB), RODATA|NOPTR, $32

// data<> makes a data segment, lkey left out, of form, page and addr: the length
// and the address are big endian.
DATA data<>+0(SB)/8, $0x8080808000010203
DATA data<>+8(SB)/8, $0x08090a0b0c0d0e0f
GLOBL data<>(SB), RODATA|NOPTR, $16

// ctrl<> makes a control segment of its first word and, behind that, the index;
// what the upper half has, an eth segment, stays.
DATA ctrl<>+0(SB)/8, $0x0706050403080900
DATA ctrl<>+8(SB)/8, $0x8080808080808080
DATA ctrl<>+16(SB)/8, $0x0706050403020100
DATA ctrl<>+24(SB)/8, $0x0f0e0d0c0b0a0908
GLOBL ctrl<>(SB), RODATA|NOPTR, $32

// next<> adds one to such an index.
DATA next<>+0(SB)/8, $0
DATA next<>+8(SB)/8, $1
DATA next<>+16(SB)/8, $0
DATA next<>+24(SB)/8, $0
GLOBL next<>(SB), RODATA|NOPTR, $32

// PREPARE fills the common registers that do not change from the fours to do (CX),
// lkey (AX) and limit (R8), and moves BX and SI from the first to behind the last.
#define PREPARE \
	MOVQ         BX, R9                       \
	SHLQ         $4, CX                       \
	LEAQ         (BX)(CX*8), BX               \
	ADDQ         CX, SI                       \
	MOVQ         CX, DX                       \
	NEGQ         DX                           \
	BSWAPL       AX                           \
	SHLQ         $32, AX                      \
	VMOVQ        AX, X10                      \
	VMOVDQU      data<>(SB), X11              \
	MOVL         $-const_etherHeader, AX      \
	VMOVD        AX, X12                      \
	VPBROADCASTD X12, X12                     \
	VMOVD        R8, X13                      \
	VPBROADCASTD X13, X13                     \
	VPXOR        X14, X14, X14

// FOUR loads four frames and goes to done unless all have the eth segment of the
// first and forms that the limit allows. Y4 and Y5 are scratch.
#define FOUR(done) \
	VMOVDQU      (0*txFrame__size)(BX)(DX*8), Y0 \
	VMOVDQU      (1*txFrame__size)(BX)(DX*8), Y1 \
	VMOVDQU      (2*txFrame__size)(BX)(DX*8), Y2 \
	VMOVDQU      (3*txFrame__size)(BX)(DX*8), Y3 \
	VPUNPCKHQDQ  Y1, Y0, Y4                   \
	VPUNPCKHQDQ  Y3, Y2, Y5                   \
	VEXTRACTI128 $1, Y4, X4                   \
	VEXTRACTI128 $1, Y5, X5                   \
	VSHUFPS      $0x88, X5, X4, X6            \
	VSHUFPS      $0xdd, X5, X4, X7            \
	VPXOR        (R9), Y0, Y4                 \
	VPXOR        (R9), Y1, Y5                 \
	VPOR         Y5, Y4, Y4                   \
	VPXOR        (R9), Y2, Y5                 \
	VPOR         Y5, Y4, Y4                   \
	VPXOR        (R9), Y3, Y5                 \
	VPOR         Y5, Y4, Y4                   \
	VPAND        eseg<>(SB), Y4, Y4           \
	VPADDD       X12, X6, X5                  \
	VPMINUD      X13, X5, X8                  \
	VPXOR        X8, X5, X5                   \
	VPOR         Y5, Y4, Y4                   \
	VPTEST       Y4, Y4                       \
	JNE          done                         \
	VPADDD       X6, X14, X14                 \
	VMOVDQU      X7, (SI)(DX*1)

// DATASEG writes the data segment of the frame in Y to where.
#define DATASEG(Y, X, where) \
	VPERMQ       $3, Y, Y                     \
	VPSHUFB      X11, X, X                    \
	VPOR         X10, X, X                    \
	VMOVDQU      X, where

// SUM ends a loop: bytes in AX, n in CX.
#define SUM \
	ADDQ         DX, CX                       \
	SHRQ         $2, CX                       \
	VPHADDD      X14, X14, X14                \
	VPHADDD      X14, X14, X14                \
	VMOVD        X14, AX

// func sessionWide(out *seg, refs *pageRef, frames *txFrame, fours int, lkey uint32, limit sizeRange) (n int, bytes uint32)
TEXT ·sessionWide(SB), NOSPLIT, $0-52
	MOVQ out+0(FP), DI
	MOVQ refs+8(FP), SI
	MOVQ frames+16(FP), BX
	MOVQ fours+24(FP), CX
	MOVL lkey+32(FP), AX
	MOVL limit+36(FP), R8
	PREPARE
	LEAQ (DI)(CX*4), DI
	TESTQ DX, DX
	JEQ  done

loop:
	FOUR(done)
	DATASEG(Y0, X0, (0*seg__size)(DI)(DX*4))
	DATASEG(Y1, X1, (1*seg__size)(DI)(DX*4))
	DATASEG(Y2, X2, (2*seg__size)(DI)(DX*4))
	DATASEG(Y3, X3, (3*seg__size)(DI)(DX*4))
	ADDQ $16, DX
	JNE  loop

done:
	SUM
	MOVQ CX, n+40(FP)
	MOVL AX, bytes+48(FP)
	VZEROUPPER
	RET

// WQE writes a WQE of control, eth and data segment for the frame in Y to block
// number i. Y15 has the control segment's first word and the index, and the eth
// segment.
#define WQE(Y, X, i) \
	VPSHUFB      ctrl<>(SB), Y15, Y5          \
	VPADDW       next<>(SB), Y15, Y15         \
	VMOVDQU      Y5, (64*i)(DI)               \
	DATASEG(Y, X, (64*i+32)(DI))

// func plainWide(wqes *wqeBlock, refs *pageRef, frames *txFrame, fours int, ctrl uint64, index uint16, lkey uint32, limit sizeRange) (n int, bytes uint32)
TEXT ·plainWide(SB), NOSPLIT, $0-68
	MOVQ wqes+0(FP), DI
	MOVQ refs+8(FP), SI
	MOVQ frames+16(FP), BX
	MOVQ fours+24(FP), CX
	VMOVQ ctrl+32(FP), X15
	MOVWLZX index+40(FP), AX
	VPINSRQ $1, AX, X15, X15
	VINSERTI128 $1, txFrame_eseg(BX), Y15, Y15
	MOVL lkey+44(FP), AX
	MOVL limit+48(FP), R8
	PREPARE
	TESTQ DX, DX
	JEQ  done

loop:
	FOUR(done)
	WQE(Y0, X0, 0)
	WQE(Y1, X1, 1)
	WQE(Y2, X2, 2)
	WQE(Y3, X3, 3)
	ADDQ $(4*64), DI
	ADDQ $16, DX
	JNE  loop

done:
	SUM
	MOVQ CX, n+56(FP)
	MOVL AX, bytes+64(FP)
	VZEROUPPER
	RET

// func inlineWide(out *seg, refs *pageRef, frames *txFrame, n int, mem *byte, base, last uint64, most uint32) (done int, bytes uint32)
//
//	BX behind the last frame, DI behind its block, SI the ref
//	CX 8 a frame, negative: what is left to do
//	R8, R9 eth segment   R10 mem   R11 base   R12 last   R13 sizes, less one   R15 bytes
TEXT ·inlineWide(SB), NOSPLIT, $0-76
	MOVQ out+0(FP), DI
	MOVQ refs+8(FP), SI
	MOVQ frames+16(FP), BX
	MOVQ n+24(FP), CX
	MOVQ (txFrame_eseg+seg_a)(BX), R8
	MOVQ (txFrame_eseg+seg_b)(BX), R9
	MOVQ mem+32(FP), R10
	MOVQ base+40(FP), R11
	MOVQ last+48(FP), R12
	MOVL most+56(FP), R13
	SUBL $const_leastBlock, R13
	XORL R15, R15
	SHLQ $3, CX
	LEAQ (BX)(CX*4), BX
	LEAQ (DI)(CX*8), DI
	NEGQ CX
	JEQ  done

loop:
	CMPQ R8, (txFrame_eseg+seg_a)(BX)(CX*4)
	JNE  done
	CMPQ R9, (txFrame_eseg+seg_b)(BX)(CX*4)
	JNE  done
	MOVL txFrame_form(BX)(CX*4), AX
	LEAL -const_leastBlock(AX), DX
	CMPL DX, R13
	JHI  done
	MOVQ txFrame_addr(BX)(CX*4), DX
	SUBQ R11, DX
	CMPQ DX, R12
	JHI  done
	ADDL AX, R15
	ORL  $const_dsInline, AX
	BSWAPL AX
	VMOVDQU (R10)(DX*1), X0   // bytes 0-15
	VMOVDQU 12(R10)(DX*1), X1 // bytes 12-27
	VMOVDQU 28(R10)(DX*1), Y2 // bytes 28-59
	MOVL AX, (DI)(CX*8)
	VMOVDQU X0, 4(DI)(CX*8)
	VMOVDQU X1, 16(DI)(CX*8)
	VMOVDQU Y2, 32(DI)(CX*8)
	MOVL txFrame_page(BX)(CX*4), AX
	MOVL AX, (SI)
	ADDQ $4, SI
	ADDQ $8, CX
	JNE  loop

done:
	SARQ $3, CX
	ADDQ n+24(FP), CX
	MOVQ CX, done+64(FP)
	MOVL R15, bytes+72(FP)
	VZEROUPPER
	RET

// func returnWide(refs *pageRef, n int, own *uint32, pages uint32, id pageRef, cache *uint32) (done, freed, others int)
//
//	SI behind the last ref   CX refs left, negative
//	DI own   DX pages   R8 id   R9 cache   R10 freed   R11 others
TEXT ·returnWide(SB), NOSPLIT, $0-64
	MOVQ refs+0(FP), SI
	MOVQ n+8(FP), CX
	MOVQ own+16(FP), DI
	MOVL pages+24(FP), DX
	MOVL id+28(FP), R8
	MOVQ cache+32(FP), R9
	XORL R10, R10
	XORL R11, R11
	LEAQ (SI)(CX*4), SI
	NEGQ CX
	JEQ  done

loop:
	MOVL (SI)(CX*4), AX
	SUBL R8, AX
	CMPL AX, DX
	JCC  other
	DECL (DI)(AX*4)
	JNE  used
	MOVL AX, (R9)(R10*4)
	INCQ R10

next:
	INCQ CX
	JNE  loop

done:
	ADDQ n+8(FP), CX
	MOVQ CX, done+40(FP)
	MOVQ R10, freed+48(FP)
	MOVQ R11, others+56(FP)
	RET

other:
	INCQ R11
	JMP  next

used: // by another queue's frame, or the receive queue; or lent and now to be settled
	CMPL (DI)(AX*4), $const_ownLent
	JNE  next
	INCL (DI)(AX*4)
	JMP  done
