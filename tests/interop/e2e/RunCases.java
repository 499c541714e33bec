import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClasspathRoots;
import static org.junit.platform.engine.discovery.DiscoverySelectors.selectMethod;
import static org.junit.platform.engine.discovery.DiscoverySelectors.selectPackage;

import java.nio.file.Path;
import java.util.Set;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/** Runs the folder of classes, packages and methods (Class#method) that it is given, and prints a line for each case. */
public class RunCases {
    public static void main(String[] names) {
        LauncherDiscoveryRequestBuilder wanted = LauncherDiscoveryRequestBuilder.request();
        for (String each : names) {
            if (each.startsWith("/")) {
                wanted.selectors(selectClasspathRoots(Set.of(Path.of(each))));
            } else {
                wanted.selectors(each.contains("#") ? selectMethod(each) : selectPackage(each));
            }
        }
        LauncherFactory.create().execute(wanted.build(), new Told());
        System.exit(0); // clients of cases have threads that would go on
    }

    static class Told implements TestExecutionListener {
        @Override
        public void executionSkipped(TestIdentifier test, String reason) {
            say(test, "ignored", reason);
        }

        @Override
        public void executionFinished(TestIdentifier test, TestExecutionResult result) {
            boolean passed = result.getStatus() == TestExecutionResult.Status.SUCCESSFUL;
            if (test.isTest() || !passed) {
                say(test, passed ? "passed" : "failed", result.getThrowable().map(String::valueOf).orElse(""));
            }
        }

        private static synchronized void say(TestIdentifier test, String verdict, String reason) {
            if (!(test.getSource().orElse(null) instanceof MethodSource)) {
                System.err.println(verdict + " " + test.getDisplayName() + " " + reason);
                return;
            }
            MethodSource source = (MethodSource) test.getSource().get();
            String[] fields = {"RESULT", source.getClassName().replaceAll(".*\\.", ""), source.getMethodName(), verdict,
                source.getClassName() + "#" + source.getMethodName() + "(" + source.getMethodParameterTypes() + ")",
                reason.replaceAll("\\s+", " ")};
            System.out.println(String.join("\t", fields));
        }
    }
}
