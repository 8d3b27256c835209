package model

// prm_test.go holds every place, constant, capability and message length of the
// control side against the layout files.

import (
	"bufio"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// place is a row of layout.tsv.
type layoutPlace struct{ bit, width, n int }

func loadLayout(t testing.TB) map[string]layoutPlace {
	t.Helper()
	out := map[string]layoutPlace{}
	forRows(t, sharedFile(t, "prm", "layout.tsv"), func(c []string) {
		num := func(s string) int { n, err := strconv.Atoi(s); require.NoError(t, err); return n }
		out[c[0]+"."+c[1]] = layoutPlace{num(c[2]), num(c[3]), num(c[4])}
	})
	return out
}

func forRows(t testing.TB, path string, visit func(c []string)) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	s := bufio.NewScanner(f)
	for s.Scan(); s.Scan(); {
		visit(strings.Split(s.Text(), "\t"))
	}
	require.NoError(t, s.Err())
}

// checkPlace compares one field. Counters of 64 bits are named by their high
// word, and lists that end a message have width 0.
func checkPlace(t testing.TB, layout map[string]layoutPlace, f field) {
	t.Helper()
	name, index, indexed := strings.Cut(strings.TrimSuffix(f.of, "]"), "[")
	p, ok := layout[name]
	require.True(t, ok, "%s is not in the layout", f.of)
	if indexed {
		i, err := strconv.Atoi(index)
		require.NoError(t, err)
		require.Less(t, i, p.n, f.of)
		p.bit, p.n = p.bit+i*p.width, 1
	}
	require.Equal(t, p.bit, int(f.bit), "place of %s", f.of)
	want := p.width * max(p.n, 0)
	if strings.HasSuffix(f.of, "_high") && f.width == 64 {
		low, ok := layout[strings.TrimSuffix(f.of, "_high")+"_low"]
		require.True(t, ok && low.bit == p.bit+32, "%s has no low word behind it", f.of)
		want = 64
	}
	require.Equal(t, want, int(f.width), "width of %s", f.of)
}

// literals returns every field literal of a file.
func literals(t testing.TB, file string) []field {
	t.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	require.NoError(t, err)
	var out []field
	ast.Inspect(tree, func(n ast.Node) bool {
		lit, ok := n.(*ast.CompositeLit)
		if !ok || len(lit.Elts) != 3 {
			return true
		}
		if id, ok := lit.Type.(*ast.Ident); !ok || id.Name != "field" {
			return true
		}
		name, ok := lit.Elts[0].(*ast.BasicLit)
		if !ok || name.Kind != token.STRING {
			return true
		}
		bit, ok1 := lit.Elts[1].(*ast.BasicLit)
		width, ok2 := lit.Elts[2].(*ast.BasicLit)
		if !ok1 || !ok2 {
			return true
		}
		of, err := strconv.Unquote(name.Value)
		require.NoError(t, err)
		b, err := strconv.Atoi(bit.Value)
		require.NoError(t, err)
		w, err := strconv.Atoi(width.Value)
		require.NoError(t, err)
		out = append(out, field{of, uint32(b), uint32(w)})
		return true
	})
	return out
}

func TestPlaces(t *testing.T) {
	layout := loadLayout(t)
	all := literals(t, "prm.go")
	require.Greater(t, len(all), 300)
	for _, f := range all {
		checkPlace(t, layout, f)
	}
}

func TestCapabilityPlaces(t *testing.T) {
	layout := loadLayout(t)
	reserved := 0
	for _, rows := range [][]capRow{generalCaps, ethernetCaps, tableCaps, matchCaps, roceCaps, atomicCaps} {
		for _, r := range rows {
			for col, v := range r.v {
				require.LessOrEqual(t, v, uint64(1)<<r.f.width-1, "%s in column %d", r.f.of, col)
			}
			st, name, _ := strings.Cut(r.f.of, ".")
			if !strings.HasPrefix(name, "reserved_at_") {
				checkPlace(t, layout, r.f)
				continue
			}
			reserved++
			for of, p := range layout {
				inside := strings.HasPrefix(of, st+".") && p.bit < int(r.f.bit+r.f.width) && p.bit+p.width*max(p.n, 1) > int(r.f.bit)
				require.False(t, inside, "%s covers %s", r.f.of, of)
			}
			for _, col := range []int{colCX5, colCX6Dx, colCX5VF} {
				require.Zero(t, r.v[col], "%s: only recorded cards set unnamed bits", r.f.of)
			}
		}
	}
	require.NotZero(t, reserved)
}

func TestConstants(t *testing.T) {
	values := map[string]uint64{}
	forRows(t, sharedFile(t, "prm", "values.tsv"), func(c []string) {
		v, err := strconv.ParseUint(c[2], 0, 64)
		require.NoError(t, err)
		values[c[0]+"."+c[1]] = v
	})
	tree, err := parser.ParseFile(token.NewFileSet(), "prm.go", nil, parser.ParseComments)
	require.NoError(t, err)
	n := 0
	for _, decl := range tree.Decls {
		g, ok := decl.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, spec := range g.Specs {
			s := spec.(*ast.ValueSpec)
			require.NotNil(t, s.Comment, "%s names no value of the manual", s.Names[0].Name)
			name := strings.TrimSpace(s.Comment.Text())
			want, ok := values[name]
			require.True(t, ok, "%s: there is no %s", s.Names[0].Name, name)
			got, err := strconv.ParseUint(s.Values[0].(*ast.BasicLit).Value, 0, 64)
			require.NoError(t, err)
			require.Equal(t, want, got, name)
			n++
		}
	}
	require.Greater(t, n, 200)
}

// TestNumberPlaces holds the one place of object numbers against every command
// that uses it.
func TestNumberPlaces(t *testing.T) {
	layout := loadLayout(t)
	for place, names := range map[field]string{
		inNumber: `destroy_cq_in.cqn query_cq_in.cqn modify_cq_in.cqn destroy_sq_in.sqn query_sq_in.sqn modify_sq_in.sqn destroy_rq_in.rqn query_rq_in.rqn
			modify_rq_in.rqn destroy_rmp_in.rmpn query_rmp_in.rmpn modify_rmp_in.rmpn destroy_tir_in.tirn query_tir_in.tirn modify_tir_in.tirn destroy_tis_in.tisn
			query_tis_in.tisn modify_tis_in.tisn destroy_rqt_in.rqtn query_rqt_in.rqtn modify_rqt_in.rqtn destroy_mkey_in.mkey_index query_mkey_in.mkey_index
			dealloc_pd_in.pd dealloc_transport_domain_in.transport_domain dealloc_uar_in.uar`,
		outNumber: `create_cq_out.cqn create_sq_out.sqn create_rq_out.rqn create_rmp_out.rmpn create_tir_out.tirn create_tis_out.tisn create_rqt_out.rqtn
			create_mkey_out.mkey_index alloc_pd_out.pd alloc_transport_domain_out.transport_domain alloc_uar_out.uar create_flow_table_out.table_id create_flow_group_out.group_id`,
		inNumber8:       `destroy_eq_in.eq_number query_eq_in.eq_number dealloc_q_counter_in.counter_set_id`,
		outNumber8:      `create_eq_out.eq_number alloc_q_counter_out.counter_set_id`,
		tableRefTableId: `destroy_flow_table_in.table_id query_flow_table_in.table_id modify_flow_table_in.table_id set_flow_table_root_in.table_id create_flow_group_in.table_id query_flow_group_in.table_id destroy_flow_group_in.table_id set_fte_in.table_id query_fte_in.table_id delete_fte_in.table_id`,
		tableRefTableType: `destroy_flow_table_in.table_type query_flow_table_in.table_type modify_flow_table_in.table_type set_flow_table_root_in.table_type create_flow_group_in.table_type query_flow_group_in.table_type
			destroy_flow_group_in.table_type set_fte_in.table_type query_fte_in.table_type delete_fte_in.table_type create_flow_table_in.table_type`,
		groupRefGroupId: `destroy_flow_group_in.group_id query_flow_group_in.group_id`,
		setFTEFlowIndex: `set_fte_in.flow_index query_fte_in.flow_index delete_fte_in.flow_index`,
		inOtherVport: `query_nic_vport_context_in.other_vport modify_nic_vport_context_in.other_vport query_vport_state_in.other_vport query_vport_counter_in.other_vport
			query_vnic_env_in.other_vport modify_vport_state_in.other_vport create_flow_table_in.other_vport set_fte_in.other_vport query_q_counter_in.other_vport`,
		inVportNumber:           `query_nic_vport_context_in.vport_number modify_nic_vport_context_in.vport_number query_vport_state_in.vport_number set_flow_table_root_in.vport_number`,
		enableHCAFunctionId:     `enable_hca_in.function_id disable_hca_in.function_id query_pages_in.function_id manage_pages_in.function_id`,
		l2TableIndex:            `set_l2_table_entry_in.table_index query_l2_table_entry_in.table_index delete_l2_table_entry_in.table_index`,
		vxlanVxlanUdpPort:       `add_vxlan_udp_dport_in.vxlan_udp_port delete_vxlan_udp_dport_in.vxlan_udp_port`,
		inside(field{}, cmdUid): `create_cq_in.uid create_sq_in.uid create_rq_in.uid create_tir_in.uid create_flow_table_in.uid alloc_pd_in.uid`,
	} {
		for _, name := range strings.Fields(names) {
			p, ok := layout[name]
			require.True(t, ok, name)
			require.Equal(t, [2]int{int(place.bit), int(place.width)}, [2]int{p.bit, p.width}, name)
		}
	}
}

// TestMessageLengths holds the least lengths of commands against structs.tsv:
// an input is never longer, and an output at most the structure.
func TestMessageLengths(t *testing.T) {
	size := map[string]int{}
	forRows(t, sharedFile(t, "prm", "structs.tsv"), func(c []string) {
		n, err := strconv.Atoi(c[3])
		require.NoError(t, err)
		size[c[0]] = n
	})
	alias := map[string]string{
		"ACCESS_REG": "access_register", "SET_FLOW_TABLE_ENTRY": "set_fte", "QUERY_FLOW_TABLE_ENTRY": "query_fte",
		"DELETE_FLOW_TABLE_ENTRY": "delete_fte",
	}
	for _, c := range commands {
		name := strings.ToLower(c.name)
		if a := alias[c.name]; a != "" {
			name = a
		}
		in, ok := size[name+"_in"]
		require.True(t, ok, c.name)
		require.LessOrEqual(t, c.inLen, in, c.name)
		require.GreaterOrEqual(t, c.inLen, min(in, 16), c.name)
		if in > 32 {
			require.Equal(t, in, c.inLen, c.name)
		}
		if name != "query_flow_counter" { // at least one counter is asked for
			require.LessOrEqual(t, c.outLen, size[name+"_out"], c.name)
		}
	}
}

// TestFieldAccess compares get and set with plain arithmetic on words, and
// looks at messages that are too short.
func TestFieldAccess(t *testing.T) {
	layout := loadLayout(t)
	for of, p := range layout {
		if p.n != 1 || p.width == 0 || p.width > 64 || p.bit > 20000 {
			continue
		}
		f := field{of, uint32(p.bit), uint32(p.width)}
		b := make([]byte, (p.bit+p.width+7)/8+3)
		for i := range b {
			b[i] = byte(i*37 + 11)
		}
		before := append([]byte{}, b...)
		want := uint64(0)
		for i := range p.width {
			bit := p.bit + i
			want = want<<1 | uint64(b[bit/8]>>(7-bit%8)&1)
		}
		require.Equal(t, want, f.get(b), of)
		f.set(b, ^want)
		if p.width < 64 {
			require.Equal(t, ^want&(1<<p.width-1), f.get(b), of)
		} else {
			require.Equal(t, ^want, f.get(b), of)
		}
		f.set(b, want)
		require.Equal(t, before, b, "%s: a neighbour changed", of)
		for n := 0; n < len(b); n += max(1, len(b)/7) {
			f.get(b[:n])
			f.set(b[:n:n], want)
			f.in(b[:n])
			require.Equal(t, before, b, of)
		}
	}
}
