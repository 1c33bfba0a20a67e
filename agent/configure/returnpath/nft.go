//go:build linux

package returnpath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"
)

// maxComment is the maximum length of a comment in nft(8), in bytes.
const maxComment = 127

func ownTable() *nftables.Table {
	return &nftables.Table{Name: nftTable, Family: nftables.TableFamilyIPv4}
}

// readRuleset reads the agent's table, line by line as ruleset.lines writes it; nil when there is none. Only its own
// chains are requested: kube-proxy may have thousands.
func readRuleset() ([]string, error) {
	conn, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	table, err := conn.ListTableOfFamily(nftTable, nftables.TableFamilyIPv4)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read nftables table ip %s: %w", nftTable, err)
	}
	lines := []string{tableLine(chainsOf(table))}
	for _, name := range chainNames() {
		more, err := readChain(conn, table, name)
		if err != nil {
			return nil, err
		}
		lines = append(lines, more...)
	}
	return lines, nil
}

// chainsOf is how many chains a table has. The kernel reports it in network byte order (nf_tables_fill_table_info),
// and the library reads it in that of the machine.
func chainsOf(table *nftables.Table) int {
	return int(binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, table.Use)))
}

func readChain(conn *nftables.Conn, table *nftables.Table, name string) ([]string, error) {
	c, err := conn.ListChain(table, name)
	switch {
	case err != nil && strings.Contains(err.Error(), unix.ENOENT.Error()): // the library keeps only the text
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read chain %s of nftables table ip %s: %w", name, nftTable, err)
	}
	lines := []string{chain{name: c.Name, kind: c.Type, hook: c.Hooknum, priority: c.Priority}.header()}
	rules, err := conn.GetRules(table, c)
	if err != nil {
		return nil, fmt.Errorf("read the rules of chain %s of nftables table ip %s: %w", name, nftTable, err)
	}
	for _, r := range rules {
		lines = append(lines, line(r.Exprs))
	}
	return lines, nil
}

// writeRuleset replaces the agent's table in one transaction: no packet sees half of it.
func writeRuleset(r ruleset) error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	// The table is created first so that deleting it always succeeds.
	conn.DelTable(conn.AddTable(ownTable()))
	if !r.empty() {
		table := conn.AddTable(ownTable())
		for _, c := range r.chains {
			added := conn.AddChain(&nftables.Chain{
				Name: c.name, Table: table, Type: c.kind, Hooknum: c.hook, Priority: c.priority,
			})
			for _, s := range c.rules {
				comment := s.text[:min(len(s.text), maxComment)]
				conn.AddRule(&nftables.Rule{
					Table: table, Chain: added, Exprs: s.exprs,
					UserData: userdata.AppendString(nil, userdata.TypeComment, comment),
				})
			}
		}
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("write nftables table ip %s: %w", nftTable, err)
	}
	return nil
}
