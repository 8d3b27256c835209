package main

// This file owns the scenario linux-up: the unmodified Linux driver probes the
// device, brings the link up, exchanges pings of many sizes over the wire,
// answers ethtool, and leaves nothing behind.

import (
	"context"
	"fmt"
	"time"
)

// profileSpeed is the speed in Mb/s at which ethtool must see a profile's port.
var profileSpeed = map[string]int{"cx4": 25000, "cx5": 100000, "cx6dx": 100000, "cx5-vf": 100000}

// pingSizes are payload bytes: around the minimum frame, the MTUs of 1500 and
// 9000, page sizes, and more than one frame.
var pingSizes = []int{64, 65, 255, 1024, 1472, 1473, 2000, 4054, 4096, 8972, 8973, 9000}

func linuxUp(ctx context.Context, l *lab) error {
	for _, profile := range []string{"cx5", "cx4", "cx6dx", "cx5-vf"} {
		if err := linuxUpAs(ctx, l, profile); err != nil {
			return fmt.Errorf("profile %s: %w", profile, err)
		}
	}
	return nil
}

// linuxUpAs uses two functions on one wire, in two network namespaces of one
// guest: each is the other's peer.
func linuxUpAs(ctx context.Context, l *lab, profile string) error {
	s, err := l.serve(ctx, 2, "-profile", profile)
	if err != nil {
		return err
	}
	g, err := l.start(ctx, machine{name: profile, sockets: s.sockets, append: "mitigations=off"})
	if err != nil {
		return err
	}
	var a, b address
	return steps(ctx,
		step{"probe", func() error { return g.loadDriver(2) }},
		step{"link", func() (err error) { a, b, err = g.pair(1500); return err }},
		step{"ping with MTU 1500", func() error { return g.pings(a, b) }},
		step{"jumbo", func() error {
			return g.all(a.where+"ip link set eth0 mtu 9000", b.where+"ip link set eth1 mtu 9000")
		}},
		step{"carrier", func() error { return g.carrier(b) }},
		step{"ping with MTU 9000", func() error { return g.pings(a, b) }},
		step{"ethtool", func() error { return g.answers(a, profileSpeed[profile]) }},
		step{"counters", func() error { return g.agree(s, a, b) }},
		step{"kernel messages", g.complaints},
		step{"unload", g.unloadDriver},
		step{"device left clean", func() error { return leftClean(s) }},
		step{"power off", g.off},
	)
}

func (g *guest) pings(a, b address) error {
	for _, size := range pingSizes {
		for _, k := range []struct {
			from address
			to   string
		}{{a, b.ip4}, {b, a.ip4}, {a, b.ip6}, {b, a.ip6}} {
			if err := g.ping(k.from, k.to, size, 3); err != nil {
				return err
			}
		}
	}
	return nil
}

// answers asks what ethtool can ask.
func (g *guest) answers(a address, speed int) error {
	tool := a.where + "/usr/sbin/ethtool "
	for _, k := range []struct {
		args     string
		patterns []string
	}{
		{"-i eth0", []string{`^driver: mlx5_core$`, `^firmware-version: \d+\.\d+\.\d+ \(\S+\)$`, `^bus-info: 0000:`}},
		{"eth0", []string{fmt.Sprintf(`Speed: %dMb/s`, speed), `Duplex: Full`, `Link detected: yes`}},
		{"-k eth0", []string{`^rx-checksumming: on$`, `^tx-checksumming: on$`, `^tcp-segmentation-offload: on$`, `^receive-hashing: on$`}},
		{"-g eth0", []string{`^RX:\s+\d\d\d+$`, `^TX:\s+\d\d\d+$`}},
		{"-l eth0", []string{`^Combined:\s+1$`}},
		{"-c eth0", []string{`^rx-usecs:`}},
		{"-a eth0", []string{`^RX:`}},
		{"-x eth0", []string{`RX flow hash indirection table`, `toeplitz: on`}},
		{"--show-priv-flags eth0", []string{`^skb_tx_mpwqe *: o(n|ff)$`, `^rx_striding_rq *: o(n|ff)$`, `^rx_cqe_compress *: o(n|ff)$`}},
	} {
		if err := g.says(tool+k.args, k.patterns...); err != nil {
			return err
		}
	}
	return nil
}

// agree compares what the driver says with what the device counted itself.
// The kernel sends frames of its own now and then, so it is asked again before
// a difference counts.
func (g *guest) agree(s *server, ends ...address) (err error) {
	for range 5 {
		time.Sleep(settle)
		if err = g.agreeNow(s, ends); err == nil {
			return nil
		}
	}
	return err
}

func (g *guest) agreeNow(s *server, ends []address) error {
	device, err := s.stats()
	if err != nil {
		return err
	}
	for i, a := range ends {
		c, err := g.counters(a)
		if err != nil {
			return err
		}
		d := device[i]
		for _, k := range []struct {
			name  string
			guest uint64
			model uint64
		}{
			{"frames sent", c["tx_packets_phy"], d.TxFrames},
			{"frames received", c["rx_packets_phy"], d.RxFrames},
			{"frames the driver sent", c["tx_packets"], d.SQ.Packets},
			{"frames the driver got", c["rx_packets"], d.RxDelivered},
		} {
			if k.guest != k.model || k.model == 0 {
				return fmt.Errorf("%s: %s: the driver says %d, the device %d", a.dev, k.name, k.guest, k.model)
			}
		}
		if n := c["rx_out_of_buffer"] + c["rx_xsk_out_of_buffer"] + c["rx_wqe_err"] + c["tx_queue_dropped"] + c["tx_cqe_err"] + c["rx_discards_phy"]; n != 0 {
			return fmt.Errorf("%s: %d frames were lost", a.dev, n)
		}
		if err := d.sound(); err != nil {
			return fmt.Errorf("%s: %w", a.dev, err)
		}
	}
	return nil
}

// leftClean requires that a driver that has gone left nothing on the device.
func leftClean(s *server) error {
	all, err := s.stats()
	if err != nil {
		return err
	}
	for i := range all {
		if err := all[i].clean(); err != nil {
			return fmt.Errorf("function %d: %w", i, err)
		}
		if err := all[i].sound(); err != nil {
			return fmt.Errorf("function %d: %w", i, err)
		}
	}
	return nil
}
