// The pages of proposals: they are loaded together.
export { EditProposal } from "./edit";
export { Proposals } from "./list";
export { ProposalPage } from "./proposal";
