#include "textflag.h"

// func storeRelease(p *uint32, v uint32)
TEXT ·storeRelease(SB), NOSPLIT, $0-12
	MOVQ p+0(FP), AX
	MOVL v+8(FP), CX
	MOVL CX, (AX)
	RET

// func fullBarrier()
TEXT ·fullBarrier(SB), NOSPLIT, $0-0
	LOCK
	ADDL $0, 0(SP)
	RET

// func storeFence()
TEXT ·storeFence(SB), NOSPLIT, $0-0
	SFENCE
	RET

// func storeLine(to *byte, from *uint64)
TEXT ·storeLine(SB), NOSPLIT, $0-16
	MOVQ to+0(FP), DI
	MOVQ from+8(FP), SI
	MOVQ 0(SI), AX
	MOVQ 8(SI), BX
	MOVQ 16(SI), CX
	MOVQ 24(SI), DX
	MOVQ 32(SI), R8
	MOVQ 40(SI), R9
	MOVQ 48(SI), R10
	MOVQ 56(SI), R11
	MOVQ AX, 0(DI)
	MOVQ BX, 8(DI)
	MOVQ CX, 16(DI)
	MOVQ DX, 24(DI)
	MOVQ R8, 32(DI)
	MOVQ R9, 40(DI)
	MOVQ R10, 48(DI)
	MOVQ R11, 56(DI)
	SFENCE
	RET
