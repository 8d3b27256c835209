package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

func init() {
	scenarios = append(scenarios, scenario{"tmp", 3 * time.Minute, func(ctx context.Context, l *lab) error {
		tool := filepath.Join(l.out, "xdptx")
		if err := goBuild(ctx, tool, "./lab/guest/xdptx"); err != nil {
			return err
		}
		b, _ := os.ReadFile(tool)
		g, err := l.start(ctx, machine{name: "a", icount: true, plugin: filepath.Join(l.cache, "pagecount.so") + ",out=" + l.out + "/pages", files: map[string][]byte{"bin/xdptx": b}})
		if err != nil {
			return err
		}
		g.run("ip link add dummy0 type dummy; load dummy; ip link set dummy0 up; xdptx dummy0; load 8021q; lsmod")
		c, err := g.floor()
		fmt.Println(c, err)
		p, err := g.profile(l.out+"/pages", "dummy")
		fmt.Println(err)
		fmt.Println(p.executed())
		return g.off()
	}})
}
