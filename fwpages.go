package main

// fwpages.go owns the memory that is lent to firmware: it is given at boot, at
// INIT_HCA and whenever firmware asks, and taken back until none is left. It
// does not own the commands (firmware.go).
// Manual: chapter Firmware Pages (QUERY_PAGES, MANAGE_PAGES).

import (
	"errors"
	"fmt"
	"sync"
)

// reclaimBatch bounds one request for pages back. Linux asks for as many.
const reclaimBatch = 512

// maxFirmwarePages bounds what we lend: 4 GiB. No firmware wants that much, and a
// confused one must not take the machine's memory.
const maxFirmwarePages = 1 << 20

// maxGive bounds what is lent at once: all addresses stand in one message.
const maxGive = (maxMessage - 16) / 8

// firmwarePages is the book of lent pages. Opening and closing use it, and the
// goroutine that serves firmware's requests.
type firmwarePages struct {
	fw    firmware
	mem   *arena
	mu    sync.Mutex
	given map[uint64]uint32 // bus address -> function
}

// provide gives firmware the pages it wants at a stage of bring-up.
func (p *firmwarePages) provide(stage uint16) error {
	function, n, err := p.fw.queryPages(stage)
	if err != nil {
		return err
	}
	if n <= 0 {
		return nil
	}
	return p.give(function, n)
}

// give lends n pages in one command. When firmware refuses them they are ours
// again; when it does not answer it may use them any time, so they stay unused
// until the arena is closed.
func (p *firmwarePages) give(function uint32, n int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n > maxGive || n > maxFirmwarePages-len(p.given) {
		return fmt.Errorf("firmware asks for %d pages beside the %d it has: refused", n, len(p.given))
	}
	run, err := p.mem.alloc(n * pageSize)
	if err != nil {
		return fmt.Errorf("%d pages for firmware: %w", n, err)
	}
	pages := run.pages()
	if err := p.fw.givePages(function, pages); err != nil {
		if refused := (*cmdError)(nil); errors.As(err, &refused) || errors.Is(err, errDeviceLost) {
			p.mem.free(run)
		}
		return err
	}
	for _, a := range pages {
		p.given[a] = function
	}
	return nil
}

// serve answers a page request event: n > 0 asks for pages, n < 0 offers some
// back. A request that cannot be met is refused in words firmware knows.
func (p *firmwarePages) serve(function uint32, n int) error {
	for left := -n; left > 0; {
		got, err := p.take(function, min(left, reclaimBatch))
		if err != nil || got == 0 {
			return err
		}
		left -= got
	}
	if n <= 0 {
		return nil
	}
	err := p.give(function, n)
	if err != nil {
		if again := p.fw.refusePages(function); again != nil {
			return fmt.Errorf("%w; then %w", err, again)
		}
	}
	return err
}

// take asks for up to n pages back and frees them.
func (p *firmwarePages) take(function uint32, n int) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pages, err := p.fw.takePages(function, n)
	if err != nil {
		return 0, err
	}
	for _, a := range pages {
		if _, ours := p.given[a]; !ours {
			return 0, fmt.Errorf("firmware returned page %#x, which it was never given", a)
		}
		delete(p.given, a)
		p.mem.freePage(a)
	}
	return len(pages), nil
}

// reclaim takes everything back; the last step before DISABLE_HCA.
func (p *firmwarePages) reclaim() error {
	for {
		p.mu.Lock()
		left, function := len(p.given), uint32(0)
		for _, function = range p.given {
			break
		}
		p.mu.Unlock()
		if left == 0 {
			return nil
		}
		n, err := p.take(function, min(left, reclaimBatch))
		if errors.Is(err, errDeviceLost) {
			p.forget()
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("firmware keeps %d pages", left)
		}
	}
}

// forget frees what a device has that is gone.
func (p *firmwarePages) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for a := range p.given {
		p.mem.freePage(a)
	}
	clear(p.given)
}
