// Every page and its address. Pages are loaded when they are opened; a view restores from its URL.
import {
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
  Outlet,
  redirect,
} from "@tanstack/react-router";
import { Failure } from "@/ui/feedback";
import { Frame } from "./frame";
import { NotFound } from "./not-found";
import {
  adminSearch,
  baseSearch,
  definitionSearch,
  editorSearch,
  ledgerSearch,
  problemSearch,
  processFilter,
  proposalFilter,
  runFilter,
  runSearch,
  signInSearch,
  text,
  timelineSearch,
} from "./search";
import { whoIsThere } from "./session";

const root = createRootRoute({ component: Outlet, notFoundComponent: NotFound, errorComponent: Failure });

/** Everything behind the sign-in. */
const frame = createRoute({
  getParentRoute: () => root,
  id: "frame",
  component: Frame,
  beforeLoad: async ({ location }) => {
    if (!(await whoIsThere())) throw redirect({ to: "/sign-in", search: { next: location.href } });
  },
});

const home = createRoute({
  getParentRoute: () => frame,
  path: "/",
  // An operator lands where problems are shown, others where decisions wait.
  beforeLoad: async () => {
    const operates = (await whoIsThere())?.scopes.includes("governance:read");
    throw redirect({ to: operates ? "/governance" : "/inbox" });
  },
});

const signIn = createRoute({
  getParentRoute: () => root,
  path: "/sign-in",
  validateSearch: signInSearch,
  component: lazyRouteComponent(() => import("@/pages/sign-in"), "SignIn"),
});

const inbox = createRoute({
  getParentRoute: () => frame,
  path: "/inbox",
  validateSearch: (search: Record<string, unknown>): { item?: string } => ({ item: text(search, "item") }),
  component: lazyRouteComponent(() => import("@/pages/inbox"), "InTray"),
});

const gate = createRoute({
  getParentRoute: () => frame,
  path: "/gate/$step",
  component: lazyRouteComponent(() => import("@/pages/gate/gate"), "Gate"),
});

const work = createRoute({
  getParentRoute: () => frame,
  path: "/work",
  component: lazyRouteComponent(() => import("@/pages/work"), "Work"),
});

const processes = createRoute({
  getParentRoute: () => frame,
  path: "/processes",
  validateSearch: processFilter,
  component: lazyRouteComponent(() => import("@/pages/processes/list"), "Processes"),
});

const process = createRoute({
  getParentRoute: () => frame,
  path: "/processes/$id",
  component: lazyRouteComponent(() => import("@/pages/processes/process"), "Process"),
});

const runs = createRoute({
  getParentRoute: () => frame,
  path: "/runs",
  validateSearch: runFilter,
  component: lazyRouteComponent(() => import("@/pages/runs/list"), "Runs"),
});

const run = createRoute({
  getParentRoute: () => frame,
  path: "/runs/$id",
  validateSearch: runSearch,
  component: lazyRouteComponent(() => import("@/pages/runs/run"), "Run"),
});

const definitions = createRoute({
  getParentRoute: () => frame,
  path: "/definitions",
  component: lazyRouteComponent(() => import("@/pages/definitions/list"), "Definitions"),
});

const editor = createRoute({
  getParentRoute: () => frame,
  path: "/definitions/new",
  validateSearch: editorSearch,
  component: lazyRouteComponent(() => import("@/pages/definitions/editor"), "Editor"),
});

const definition = createRoute({
  getParentRoute: () => frame,
  path: "/definitions/$name",
  validateSearch: definitionSearch,
  component: lazyRouteComponent(() => import("@/pages/definitions/definition"), "Definition"),
});

const proposals = createRoute({
  getParentRoute: () => frame,
  path: "/proposals",
  validateSearch: proposalFilter,
  component: lazyRouteComponent(() => import("@/pages/proposals"), "Proposals"),
});

const proposal = createRoute({
  getParentRoute: () => frame,
  path: "/proposals/$id",
  component: lazyRouteComponent(() => import("@/pages/proposals"), "ProposalPage"),
});

const editProposal = createRoute({
  getParentRoute: () => frame,
  path: "/proposals/$id/edit",
  validateSearch: baseSearch,
  component: lazyRouteComponent(() => import("@/pages/proposals"), "EditProposal"),
});

const governance = createRoute({
  getParentRoute: () => frame,
  path: "/governance",
  component: lazyRouteComponent(() => import("@/pages/governance"), "Governance"),
});

const category = createRoute({
  getParentRoute: () => frame,
  path: "/governance/problems/$category",
  validateSearch: problemSearch,
  component: lazyRouteComponent(() => import("@/pages/governance"), "Category"),
});

const deadLetters = createRoute({
  getParentRoute: () => frame,
  path: "/governance/dead-letters",
  validateSearch: problemSearch,
  component: lazyRouteComponent(() => import("@/pages/governance"), "DeadLetters"),
});

const deadLetter = createRoute({
  getParentRoute: () => frame,
  path: "/governance/dead-letters/$id",
  component: lazyRouteComponent(() => import("@/pages/governance"), "DeadLetter"),
});

const timeline = createRoute({
  getParentRoute: () => frame,
  path: "/governance/timeline",
  validateSearch: timelineSearch,
  component: lazyRouteComponent(() => import("@/pages/governance"), "TimelinePage"),
});

const ledger = createRoute({
  getParentRoute: () => frame,
  path: "/ledger",
  validateSearch: ledgerSearch,
  component: lazyRouteComponent(() => import("@/pages/ledger/ledger"), "Ledger"),
});

const verify = createRoute({
  getParentRoute: () => root,
  path: "/verify",
  component: lazyRouteComponent(() => import("@/pages/ledger/verify"), "Verify"),
});

const admin = createRoute({
  getParentRoute: () => frame,
  path: "/admin",
  validateSearch: adminSearch,
  component: lazyRouteComponent(() => import("@/pages/admin/admin"), "Admin"),
});

const explain = createRoute({
  getParentRoute: () => frame,
  path: "/explain/$code",
  component: lazyRouteComponent(() => import("@/pages/explain"), "Explain"),
});

export const router = createRouter({
  routeTree: root.addChildren([
    signIn,
    verify,
    frame.addChildren([
      home,
      inbox,
      gate,
      work,
      processes,
      process,
      runs,
      run,
      definitions,
      editor,
      definition,
      proposals,
      proposal,
      editProposal,
      governance,
      category,
      deadLetters,
      deadLetter,
      timeline,
      ledger,
      admin,
      explain,
    ]),
  ]),
  defaultPreload: "intent",
  scrollRestoration: true,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
