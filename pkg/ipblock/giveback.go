package ipblock

// GiveBack decides the next step to give back a block that nobody owns any more. That nobody does was decided
// before; a block that is retained or was brought is kept nevertheless.
func GiveBack(b Block, v View) Step {
	if b.BringYourOwn || Retained(b) {
		return Step{Action: Done, Reason: BlockKept, Block: b}
	}
	return releaseOne(Sighting{Block: b}, v)
}
