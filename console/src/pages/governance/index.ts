// The pages of governance: they are loaded together.
export { Governance } from "./board";
export { Category } from "./category";
export { DeadLetter } from "./letter";
export { DeadLetters } from "./letters";
export { TimelinePage } from "./timeline";
